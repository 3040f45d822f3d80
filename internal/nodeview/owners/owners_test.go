package owners_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview/owners"
)

type set = map[string]string

const (
	apply  = metav1.ManagedFieldsOperationApply
	update = metav1.ManagedFieldsOperationUpdate
)

func TestOwnersAreCanonical(t *testing.T) {
	a := owners.Owner{Manager: "argocd", Operation: apply, Keys: "rack,team"}
	b := owners.Owner{Manager: "argocd", Operation: update, Keys: "zone"}
	assert.Equal(t, owners.Of([]owners.Owner{a, b, {Manager: "none", Operation: update}}), owners.Of([]owners.Owner{b, a}))
	list, err := owners.Of([]owners.Owner{b, a}).List()
	require.NoError(t, err)
	assert.Equal(t, []owners.Owner{a, b}, list)
	assert.Empty(t, owners.Of(nil))
	assert.Empty(t, owners.Of([]owners.Owner{{Manager: "argocd", Operation: apply, Keys: labels.Keys(strings.Repeat("k,", 20000) + "k")}}), "they are an annotation")
}

func TestKeysWithoutAnOwnerHaveTheirFormerOnes(t *testing.T) {
	former := owners.Of([]owners.Owner{{"argocd", apply, "gone,rack,team"}, {"kubectl-label", update, "changed,team,zone"}})
	later := owners.Of([]owners.Owner{{"kubectl-edit", update, "ignored,team"}})
	before := []set{{"gone": "", "rack": "", "team": "", "changed": "1"}, {"zone": ""}}
	after := []set{{"rack": "", "team": "", "changed": "2"}, {"zone": ""}}
	assert.Equal(t,
		owners.Of([]owners.Owner{{"argocd", apply, "rack"}, {"kubectl-edit", update, "team"}, {"kubectl-label", update, "zone"}}),
		later.After(former, before, after))
	assert.Empty(t, owners.Owners("").After("", before, after))
	assert.Equal(t, owners.Of([]owners.Owner{{"kubectl-edit", update, "team"}}), later.After("no JSON", before, after))
	assert.Equal(t, owners.Of([]owners.Owner{{"kubectl-label", update, "zone"}}), former.Without("changed,gone,rack,team"))
}

func TestLabelThatNodekeeperOwnsTooKeepsItsFormerOwners(t *testing.T) {
	former := owners.Of([]owners.Owner{{"kubectl-label", update, "rack,team"}})
	later := owners.Of([]owners.Owner{{"argocd", apply, "rack,team,tier"}, {owners.Processor, update, "rack,tier"}})
	same := []set{{"rack": "r7", "team": "blue", "tier": "gold"}}
	assert.Equal(t, owners.Of([]owners.Owner{{"argocd", apply, "rack,team,tier"}, {"kubectl-label", update, "rack"}}), later.After(former, same, same).Others())
	assert.Equal(t, later.Others(), later.After("", nil, same).Others(), "no owner is known otherwise")
}

func TestOwnersThatTheAPIServerRefuses(t *testing.T) {
	long := strings.Repeat("m", 129)
	text := owners.Owners(`[{"manager":"` + long + `","operation":"Update","keys":"rack"},{"manager":"a\u0001","operation":"Update","keys":"rack"},` +
		`{"manager":"","operation":"Update","keys":"rack"},{"manager":"a","operation":"","keys":"rack"},{"manager":"b","operation":"Apply","keys":"rack"}]`)
	list, err := text.List()
	require.NoError(t, err)
	assert.Equal(t, []owners.Owner{{"b", apply, "rack"}}, list)
}

func entry(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields), Time: new(metav1.Now())}
}

const restored = `{"f:metadata":{"f:labels":{"f:labels_restored":{},"f:rack":{},"f:team":{}}},"f:spec":{"f:taints":{}}}`

// own are the labels of a Node.
func own() set { return set{"rack": "r7", "team": "blue", "taint:dedicated:NoSchedule": ""} }

func TestGiveBackLeavesTheRestNodekeepers(t *testing.T) {
	for name, tc := range map[string]struct {
		owner owners.Owner
		want  string // what the owner gets
	}{
		"a label":                 {owners.Owner{"argocd", apply, "rack"}, `{"f:metadata":{"f:labels":{"f:rack":{}}}}`},
		"a label that is gone":    {owners.Owner{"argocd", apply, "tier"}, ""},
		"the marker":              {owners.Owner{"argocd", apply, labels.Marker}, ""},
		"taints of who applies":   {owners.Owner{"argocd", apply, "taint:dedicated:NoSchedule"}, ""},
		"taints of who updates":   {owners.Owner{"kubectl-taint", update, "taint:dedicated:NoSchedule"}, `{"f:spec":{"f:taints":{}}}`},
		"a taint that is no more": {owners.Owner{"kubectl-taint", update, "taint:other:NoSchedule"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			entries, err := owners.Of([]owners.Owner{tc.owner}).GiveBack([]metav1.ManagedFieldsEntry{entry(owners.Processor, update, restored)}, own(), false)
			require.NoError(t, err)
			if tc.want == "" {
				assert.Nil(t, entries)
				return
			}
			require.Len(t, entries, 2)
			assert.Equal(t, tc.owner.Manager, entries[1].Manager)
			assert.Equal(t, tc.want, entries[1].FieldsV1.GetRawString())
			assert.Nil(t, entries[1].Time)
			assert.NotContains(t, entries[0].FieldsV1.GetRawString(), strings.Trim(tc.want, "{}"))
			assert.Contains(t, entries[0].FieldsV1.GetRawString(), "f:labels_restored")
		})
	}
}

func TestTaintsOfWhoAppliesIfThereAreNoOthers(t *testing.T) {
	to := owners.Of([]owners.Owner{{"argocd", apply, "taint:dedicated:NoSchedule"}})
	entries, err := to.GiveBack([]metav1.ManagedFieldsEntry{entry(owners.Processor, update, restored)}, own(), true)
	require.NoError(t, err)
	assert.Len(t, entries, 2)
	more := own()
	more["taint:gpu:NoSchedule"] = ""
	entries, err = to.GiveBack([]metav1.ManagedFieldsEntry{entry(owners.Processor, update, restored)}, more, true)
	require.NoError(t, err)
	assert.Nil(t, entries, "the tool would remove what the kubelet registers with")
}

func TestNodekeeperIsNoOwner(t *testing.T) {
	entries, err := owners.Of([]owners.Owner{{owners.Processor, update, "rack"}}).GiveBack([]metav1.ManagedFieldsEntry{entry(owners.Processor, update, restored)}, own(), true)
	require.NoError(t, err)
	assert.Nil(t, entries)
}

func TestOwnerWithAnEntryGetsNoOther(t *testing.T) {
	to := owners.Of([]owners.Owner{{"argocd", apply, "rack"}})
	entries, err := to.GiveBack([]metav1.ManagedFieldsEntry{entry("argocd", apply, `{"f:metadata":{"f:labels":{"f:own":{}}}}`), entry(owners.Processor, update, restored)}, own(), false)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	assert.JSONEq(t, `{"f:metadata":{"f:labels":{"f:own":{},"f:rack":{}}}}`, entries[0].FieldsV1.GetRawString())
	assert.NotNil(t, entries[0].Time)
}

func TestNoEntryIsForgottenForAnother(t *testing.T) {
	entries := []metav1.ManagedFieldsEntry{entry(owners.Processor, update, restored)}
	for i := range 6 {
		entries = append(entries, entry(fmt.Sprint("tool-", i), update, `{"f:metadata":{"f:annotations":{"f:a":{}}}}`))
	}
	to := owners.Of([]owners.Owner{{"argocd", apply, "team"}, {"one", update, "rack"}, {"two", update, "rack"}})
	after, err := to.GiveBack(entries, own(), false)
	require.NoError(t, err)
	var managers []string
	for _, added := range after[len(entries):] {
		managers = append(managers, added.Manager)
	}
	assert.Equal(t, []string{"argocd", "one"}, managers)
}

func TestUnreadableOwners(t *testing.T) {
	_, err := owners.Owners("no JSON").GiveBack([]metav1.ManagedFieldsEntry{entry(owners.Processor, update, restored)}, own(), false)
	require.ErrorIs(t, err, owners.ErrUnreadable)
	_, err = owners.Of([]owners.Owner{{"argocd", apply, "rack"}}).GiveBack([]metav1.ManagedFieldsEntry{entry(owners.Processor, update, `["f:labels"]`)}, own(), false)
	require.ErrorIs(t, err, owners.ErrUnreadable)
}
