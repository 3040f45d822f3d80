package reference_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/service/settings"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/reference"
)

const (
	kubelet = "kubelet"
	person  = "kubectl-label"
	zone    = "topology.kubernetes.io/zone"
	team    = "example.com/team"
	role    = "node-role.kubernetes.io/worker"
	exclude = "node.kubernetes.io/exclude-from-external-load-balancers"
	reboot  = "example.com/reboot-pending"
)

// kept is a row of the table: a label, an annotation or a taint, and its setters in the former life
// of the node. Each of them sets a value of its own, and "" removes it.
type kept struct {
	text, flags, key string
	setters          []string
	settings         settings.Settings
}

var rows = []kept{
	{text: "Set by people, such as `" + team + "`", key: team, setters: []string{person}},
	{
		text: "The same", flags: "`--same-machine-labels=*`", key: team, setters: []string{person},
		settings: settings.Settings{settings.SameMachine: "*"},
	},
	{text: "Set only by the machine's agents", flags: "[`--machine-managers`](#agents)", key: team, setters: []string{kubelet}},
	{text: "Set by agents, and changed by people", flags: "The same", key: team, setters: []string{kubelet, person}},
	{text: "Set by agents, and removed by people", flags: "The same", key: team, setters: []string{kubelet, ""}},
	{
		text: "The same", flags: "`--restore-mode=merge`", key: team, setters: []string{kubelet, ""},
		settings: settings.Settings{settings.RestoreMode: string(labels.Merge)},
	},
	{text: "[Live](#what-a-restore-does), such as `" + zone + "`", flags: "`--live-labels`", key: zone, setters: []string{person}},
	{text: "[Of a machine](#labels-of-a-machine), such as `" + exclude + "`", flags: "`--same-machine-labels`", key: exclude, setters: []string{person}},
	{text: "[Restricted](#restricted-labels), such as `" + role + "`", flags: "`--restricted-labels`", key: role, setters: []string{person}},
	{
		text: "The same", flags: "`--restricted-labels=keep`", key: role, setters: []string{person},
		settings: settings.Settings{settings.Restricted: string(labels.Keep)},
	},
	{
		text: "The same", flags: "`--restricted-labels=drop`", key: role, setters: []string{person},
		settings: settings.Settings{settings.Restricted: string(labels.Drop)},
	},
	{text: "[Of a moment](#labels-that-are-ignored), such as `" + reboot + "`", flags: "`--ignore-labels`", key: reboot, setters: []string{person}},
	{text: "[Annotations](#taints-and-annotations) of people", key: labels.AnnotationKey(team), setters: []string{person}},
	{
		text: "The same", flags: "`--preserve-annotations=" + team + "`", key: labels.AnnotationKey(team), setters: []string{person},
		settings: settings.Settings{settings.Annotations: team},
	},
	{text: "[Taints](#taints-and-annotations) of people", key: labels.TaintKey(team, "NoSchedule"), setters: []string{person}},
	{
		text: "The same", flags: "`--preserve-taints=" + team + "`", key: labels.TaintKey(team, "NoSchedule"), setters: []string{person},
		settings: settings.Settings{settings.Taints: team},
	},
}

// The table is what the decision answers for Nodes as the API server has them.
func TestReferenceHasWhichLabelsComeBack(t *testing.T) {
	var table strings.Builder
	table.WriteString("| Label | Flag | On the same machine | On another machine |\n| --- | --- | --- | --- |\n")
	for _, row := range rows {
		same, another := row.returned(t, "a"), row.returned(t, "b")
		_, _ = fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", row.text, row.flags, same, another)
	}
	reference.Check(t, "docs/explanation/labels.md", "labels that come back", table.String())
}

// returned describes what a machine has after its return, whether it registers with the key or not.
func (k kept) returned(t *testing.T, machine string) string {
	t.Helper()
	const own = "registered"
	saved := k.setters[len(k.setters)-1]
	without, isWithheld := k.outcome(t, machine, "")
	with, _ := k.outcome(t, machine, own)
	switch [2]string{without, with} {
	case [2]string{saved, saved}:
		if saved == "" {
			return "Removed, if the returned node has it"
		}
		return "Restored"
	case [2]string{saved, own}:
		if saved != "" {
			return "Restored, if the returned node does not have it"
		}
		return "As the returned node has it"
	case [2]string{"", own}:
		if isWithheld {
			return "Withheld until its machine returns"
		}
		return "As the returned node has it"
	}
	require.Fail(t, "no text for what comes back", "%s: %q without the key, %q with it", k.text, without, with)
	return ""
}

// outcome returns the value of the key after a machine has returned that registers with it or not,
// and whether the record withholds the former value.
func (k kept) outcome(t *testing.T, machine, registered string) (value string, isWithheld bool) {
	t.Helper()
	name := replay{t: t, settings: settings.Defaults().With(k.settings)}
	for at, setter := range k.setters {
		name.apply(txn.Updated, k.node("a", "former", 100+at, setter, setter))
	}
	last := k.setters[len(k.setters)-1]
	name.apply(txn.Deleted, k.node("a", "former", 150, last, last))
	next := k.node(machine, "returned", 200, kubelet, registered)
	before, after := name.apply(txn.Added, next)
	isWithheld = name.record.WithheldKeys().Has(k.key)
	differing := labels.Differing(before.Labels, after.Labels)
	if len(differing) == 0 {
		return registered, isWithheld
	}
	require.Equal(t, []string{k.key}, differing)
	return after.Labels[k.key], isWithheld
}

// now is when each Node is read: long after its creation.
var now = time.Date(2026, time.November, 1, 12, 0, 0, 0, time.UTC)

// replay applies the transactions of one node as a processor does.
type replay struct {
	t        *testing.T
	settings settings.Settings
	record   *record.Record
}

// apply settles the transaction of one event, and returns the Node before and after that.
func (r *replay) apply(typ txn.Type, whole *corev1.Node) (before, after *nodeview.Node) {
	r.t.Helper()
	view, policy := r.settings.View(), r.settings.Policy()
	before = view.OfWhole(whole, now)
	event := txn.Of(typ, before)
	event.FoundsRecord = typ == txn.Added
	if after = before; typ == txn.Deleted {
		after = nil
	}
	for range 10 {
		d := preserve.Decide(event, r.record, after, policy)
		switch d.Action {
		case preserve.Save:
			r.record = &d.Record
		case preserve.Restore:
			left := *after
			left.Labels, left.Marker = d.Labels, d.Marker
			noted := preserve.Noted(*r.record, *after, left, view.MachineBound)
			r.record, after = &noted, &left
		case preserve.Nothing, preserve.Open:
		}
		if !d.Again {
			return before, after
		}
	}
	require.Fail(r.t, "the transaction is never settled")
	return nil, nil
}

// node returns the Node of a machine that has registered, with the key if its value is not empty.
func (k kept) node(machine string, uid types.UID, rv int, setter, value string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "node-1", UID: uid, ResourceVersion: strconv.Itoa(rv), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
		Labels: map[string]string{corev1.LabelOSStable: "linux"}, ManagedFields: []metav1.ManagedFieldsEntry{},
	}}
	n.Spec.ProviderID, n.Status.NodeInfo.SystemUUID = "cloud:///"+machine, machine
	owns(n, kubelet, "metadata", "labels", corev1.LabelOSStable)
	if value == "" {
		return n
	}
	annotation, isAnnotation := labels.AsAnnotation(k.key)
	taint, effect, isTaint := labels.AsTaint(k.key)
	switch {
	case isTaint:
		n.Spec.Taints = []corev1.Taint{{Key: taint, Effect: corev1.TaintEffect(effect), Value: value}}
		owns(n, setter, "spec", "taints")
	case isAnnotation:
		n.Annotations = map[string]string{annotation: value}
		owns(n, setter, "metadata", "annotations", annotation)
	default:
		n.Labels[k.key] = value
		owns(n, setter, "metadata", "labels", k.key)
	}
	return n
}

// owns adds an entry of managedFields for one field, when the Node was created.
func owns(n *corev1.Node, manager string, path ...string) {
	fields := "{}"
	for _, member := range slices.Backward(path) {
		fields = fmt.Sprintf(`{"f:%s":%s}`, member, fields)
	}
	n.ManagedFields = append(n.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &n.CreationTimestamp,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
	})
}
