package agents_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview/agents"
)

func TestEditedSinceTheCreation(t *testing.T) {
	t.Parallel()
	n := register(t, set{"zone": "z1", "pool": "a"})
	awaitNextSecond(t)
	n.patch(person, map[string]any{"rack": "r1", "pool": "b", "gone": "x"})
	n.patch(person, map[string]any{"gone": nil})
	n.patch(nfd, map[string]any{"feature": "true"})
	n.patch("nodekeeper-processor/v1 (linux/amd64)", map[string]any{"team": "blue", labels.Marker: "7"})
	assert.Equal(t, labels.Keys("labels_restored,pool,rack"), n.read().Edited, "what a restore or an agent sets is no edit")

	n.patch(person, map[string]any{"team": "green"})
	assert.Equal(t, labels.Keys("labels_restored,pool,rack,team"), n.read().Edited)

	n.patch(person, map[string]any{labels.Marker: "9"})
	assert.Contains(t, n.read().Edited.Set(), "team")
	assert.False(t, n.read().Edited.Has(labels.Marker), "a user has set this marker")
}

func TestEditedOfEntries(t *testing.T) {
	at := func(later time.Duration, e metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
		e.Time = &metav1.Time{Time: e.Time.Add(later)}
		return e
	}
	const other = `{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/os":{},"f:kubernetes.io/hostname":{}}}}`
	const ttl = `{"f:metadata":{"f:annotations":{".":{},"f:node.alpha.kubernetes.io/ttl":{}}}}`
	const marker = `{"f:metadata":{"f:labels":{".":{},"f:labels_restored":{}}}}`
	for name, tc := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    labels.Keys
	}{
		"in the create request":             {[]metav1.ManagedFieldsEntry{entry("kubectl-create", zone)}, ""},
		"in the second of the creation":     {[]metav1.ManagedFieldsEntry{entry("kubelet", other), entry("kubectl-label", zone)}, "zone"},
		"beside another agent":              {[]metav1.ManagedFieldsEntry{entry("kube-controller-manager", ttl), entry("kubectl-create", zone)}, ""},
		"or in the create request":          {[]metav1.ManagedFieldsEntry{at(time.Second, entry("kubelet", other)), entry("kubectl-create", zone)}, ""},
		"later":                             {[]metav1.ManagedFieldsEntry{entry("kubectl-create", ttl), at(time.Second, entry("kubectl-label", zone))}, "zone"},
		"later than a kubelet's":            {[]metav1.ManagedFieldsEntry{at(time.Minute, entry("kubelet", other)), at(time.Second, entry("kubectl-label", zone))}, "zone"},
		"by the creator, with other fields": {[]metav1.ManagedFieldsEntry{at(time.Second, entry("bare-metal-operator", zone))}, ""},
		"by an agent":                       {[]metav1.ManagedFieldsEntry{at(time.Second, entry("kubelet", zone))}, ""},
		"by a manager that is unknown":      {[]metav1.ManagedFieldsEntry{at(time.Second, entry("before-first-apply", zone))}, ""},
		"by the webhook":                    {[]metav1.ManagedFieldsEntry{at(time.Second, entry(agents.Webhook, zone))}, ""},
		"by a restore":                      {[]metav1.ManagedFieldsEntry{at(time.Second, entry("nodekeeper-processor", zone))}, ""},
		"without a time":                    {[]metav1.ManagedFieldsEntry{{Manager: "kubectl-label", FieldsV1: metav1.NewFieldsV1(zone)}}, ""},
		"a key that is gone":                {[]metav1.ManagedFieldsEntry{at(time.Second, entry("kubectl-label", `{"f:metadata":{"f:labels":{"f:gone":{}}}}`))}, ""},
		"the marker, by a restore":          {[]metav1.ManagedFieldsEntry{entry("nodekeeper-processor", marker)}, labels.Marker},
		"the marker, copied":                {[]metav1.ManagedFieldsEntry{at(-time.Second, entry("nodekeeper-processor", marker))}, ""},
		"the marker, by the webhook":        {[]metav1.ManagedFieldsEntry{entry(agents.Webhook, marker)}, labels.Marker},
		"the marker, by a user":             {[]metav1.ManagedFieldsEntry{at(time.Second, entry("kubectl-label", marker))}, ""},
		"the marker, in the create request": {[]metav1.ManagedFieldsEntry{entry("kubectl-create", marker)}, ""},
		"another entry is unreadable":       {[]metav1.ManagedFieldsEntry{at(time.Second, entry("kubectl-label", zone)), entry("x", `["f:labels"]`)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Labels: here, ManagedFields: tc.entries, CreationTimestamp: *entry("", "").Time,
			}}
			assert.Equal(t, tc.want, parse(t, "kubelet,kube-controller-manager").Of(&n.ObjectMeta).Edited)
		})
	}
}
