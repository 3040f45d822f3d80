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

// at returns an entry that was written later.
func at(e metav1.ManagedFieldsEntry, later time.Duration) metav1.ManagedFieldsEntry {
	e.Time = &metav1.Time{Time: e.Time.Add(later)}
	return e
}

func TestEditedOfEntries(t *testing.T) {
	const other = `{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/os":{},"f:kubernetes.io/hostname":{}}}}`
	const ttl = `{"f:metadata":{"f:annotations":{".":{},"f:node.alpha.kubernetes.io/ttl":{}}}}`
	for name, tc := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    labels.Keys
	}{
		"in the create request":             {[]metav1.ManagedFieldsEntry{entry("kubectl-create", zone)}, ""},
		"in the second of the creation":     {[]metav1.ManagedFieldsEntry{entry("kubelet", other), entry("kubectl-label", zone)}, "zone"},
		"beside another agent":              {[]metav1.ManagedFieldsEntry{entry("kube-controller-manager", ttl), entry("kubectl-create", zone)}, ""},
		"or in the create request":          {[]metav1.ManagedFieldsEntry{at(entry("kubelet", other), time.Second), entry("kubectl-create", zone)}, ""},
		"later":                             {[]metav1.ManagedFieldsEntry{entry("kubectl-create", ttl), at(entry("kubectl-label", zone), time.Second)}, "zone"},
		"later than a kubelet's":            {[]metav1.ManagedFieldsEntry{at(entry("kubelet", other), time.Minute), at(entry("kubectl-label", zone), time.Second)}, "zone"},
		"by the creator, with other fields": {[]metav1.ManagedFieldsEntry{at(entry("bare-metal-operator", zone), time.Second)}, ""},
		"by an agent":                       {[]metav1.ManagedFieldsEntry{at(entry("kubelet", zone), time.Second)}, ""},
		"by a manager that is unknown":      {[]metav1.ManagedFieldsEntry{at(entry("before-first-apply", zone), time.Second)}, ""},
		"by the webhook":                    {[]metav1.ManagedFieldsEntry{at(entry(agents.Webhook, zone), time.Second)}, ""},
		"by a restore":                      {[]metav1.ManagedFieldsEntry{at(entry("nodekeeper-processor", zone), time.Second)}, ""},
		"without a time":                    {[]metav1.ManagedFieldsEntry{{Manager: "kubectl-label", FieldsV1: metav1.NewFieldsV1(zone)}}, ""},
		"a key that is gone":                {[]metav1.ManagedFieldsEntry{at(entry("kubectl-label", `{"f:metadata":{"f:labels":{"f:gone":{}}}}`), time.Second)}, ""},
		"another entry is unreadable":       {[]metav1.ManagedFieldsEntry{at(entry("kubectl-label", zone), time.Second), entry("x", `["f:labels"]`)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Labels: set{"zone": "a"}, ManagedFields: tc.entries, CreationTimestamp: *entry("", "").Time,
			}}
			assert.Equal(t, tc.want, parse(t, "kubelet,kube-controller-manager").Of(&n.ObjectMeta).Edited)
		})
	}
}

// A marker counts as that of a restore unless someone else is known to have set it.
func TestSetterOfTheMarker(t *testing.T) {
	const marker = `{"f:metadata":{"f:labels":{".":{},"f:labels_restored":{}}}}`
	for name, tc := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    labels.Keys
	}{
		"a restore":                     {[]metav1.ManagedFieldsEntry{entry("nodekeeper-processor", marker)}, labels.Marker},
		"a restore onto another Node":   {[]metav1.ManagedFieldsEntry{at(entry("nodekeeper-processor", marker), -time.Second)}, ""},
		"the webhook":                   {[]metav1.ManagedFieldsEntry{entry(agents.Webhook, marker)}, labels.Marker},
		"a user":                        {[]metav1.ManagedFieldsEntry{at(entry("kubectl-label", marker), time.Second)}, ""},
		"a user, in the create request": {[]metav1.ManagedFieldsEntry{entry("kubectl-create", marker)}, ""},
		"merged":                        {[]metav1.ManagedFieldsEntry{entry("ancient-changes", marker), at(entry("kubectl-label", zone), time.Second)}, labels.Marker},
		"merged, and a user":            {[]metav1.ManagedFieldsEntry{entry("ancient-changes", marker), at(entry("kubectl-label", marker), time.Second)}, ""},
		"not recorded":                  {[]metav1.ManagedFieldsEntry{entry("kubectl-label", zone)}, labels.Marker},
		"reset managed fields":          {nil, labels.Marker},
		"in an unreadable entry":        {[]metav1.ManagedFieldsEntry{entry("x", `["f:labels"]`)}, labels.Marker},
	} {
		t.Run(name, func(t *testing.T) {
			for value, want := range map[string]labels.Keys{"7": tc.want, labels.Pending: tc.want.Where(func(string) bool { return name == "a restore" })} {
				own := set{"zone": "a", labels.Marker: value}
				n := &metav1.ObjectMeta{Labels: own, ManagedFields: tc.entries, CreationTimestamp: *entry("", "").Time}
				assert.Equal(t, want, parse(t, "kubelet").Of(n).Edited.Where(func(key string) bool { return key == labels.Marker }), value)
			}
		})
	}
}
