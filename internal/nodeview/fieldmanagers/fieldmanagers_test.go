package fieldmanagers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview/fieldmanagers"
)

type set = map[string]string

const (
	apply  = metav1.ManagedFieldsOperationApply
	update = metav1.ManagedFieldsOperationUpdate
)

func TestOwnersAreCanonical(t *testing.T) {
	a := fieldmanagers.Owner{Manager: "argocd", Operation: apply, Keys: "rack,team"}
	b := fieldmanagers.Owner{Manager: "argocd", Operation: update, Keys: "zone"}
	assert.Equal(t, fieldmanagers.Of([]fieldmanagers.Owner{a, b, {Manager: "none", Operation: update}}), fieldmanagers.Of([]fieldmanagers.Owner{b, a}))
	list, err := fieldmanagers.Of([]fieldmanagers.Owner{b, a}).List()
	require.NoError(t, err)
	assert.Equal(t, []fieldmanagers.Owner{a, b}, list)
	assert.Empty(t, fieldmanagers.Of(nil))
	assert.Empty(t, fieldmanagers.Of([]fieldmanagers.Owner{{Manager: "argocd", Operation: apply, Keys: labels.Keys(strings.Repeat("k,", 20000) + "k")}}), "they are an annotation")
}

func TestKeysWithoutAnOwnerHaveTheirFormerOnes(t *testing.T) {
	former := fieldmanagers.Of([]fieldmanagers.Owner{{"argocd", apply, "gone,rack,team"}, {"kubectl-label", update, "changed,team,zone"}})
	later := fieldmanagers.Of([]fieldmanagers.Owner{{"kubectl-edit", update, "ignored,team"}})
	before := []set{{"gone": "", "rack": "", "team": "", "changed": "1"}, {"zone": ""}}
	after := []set{{"rack": "", "team": "", "changed": "2"}, {"zone": ""}}
	assert.Equal(t,
		fieldmanagers.Of([]fieldmanagers.Owner{{"argocd", apply, "rack"}, {"kubectl-edit", update, "team"}, {"kubectl-label", update, "zone"}}),
		later.After(former, before, after))
	assert.Empty(t, fieldmanagers.Owners("").After("", before, after))
	assert.Equal(t, fieldmanagers.Of([]fieldmanagers.Owner{{"kubectl-edit", update, "team"}}), later.After("no JSON", before, after))
	assert.Equal(t, fieldmanagers.Of([]fieldmanagers.Owner{{"kubectl-label", update, "zone"}}), former.Without("changed,gone,rack,team"))
}

func TestLabelThatNodekeeperOwnsTooKeepsItsFormerOwners(t *testing.T) {
	former := fieldmanagers.Of([]fieldmanagers.Owner{{"kubectl-label", update, "rack,team"}})
	later := fieldmanagers.Of([]fieldmanagers.Owner{{"argocd", apply, "rack,team,tier"}, {fieldmanagers.Processor, update, "rack,tier"}})
	same := []set{{"rack": "r7", "team": "blue", "tier": "gold"}}
	assert.Equal(t, fieldmanagers.Of([]fieldmanagers.Owner{{"argocd", apply, "rack,team,tier"}, {"kubectl-label", update, "rack"}}), later.After(former, same, same).Others())
	assert.Equal(t, later.Others(), later.After("", nil, same).Others(), "no owner is known otherwise")
}

func TestOwnersThatTheAPIServerRefuses(t *testing.T) {
	long := strings.Repeat("m", 129)
	text := fieldmanagers.Owners(`[{"manager":"` + long + `","operation":"Update","keys":"rack"},{"manager":"a\u0001","operation":"Update","keys":"rack"},` +
		`{"manager":"","operation":"Update","keys":"rack"},{"manager":"a","operation":"","keys":"rack"},{"manager":"b","operation":"Apply","keys":"rack"}]`)
	list, err := text.List()
	require.NoError(t, err)
	assert.Equal(t, []fieldmanagers.Owner{{"b", apply, "rack"}}, list)
}

func entry(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields), Time: new(metav1.Now())}
}

const restored = `{"f:metadata":{"f:labels":{"f:labels_restored":{},"f:rack":{},"f:team":{}}},"f:spec":{"f:taints":{}}}`

// own are the labels of a Node.
func own() set { return set{"rack": "r7", "team": "blue", "taint:dedicated:NoSchedule": ""} }

func TestGiveBackLeavesTheRestNodekeepers(t *testing.T) {
	for name, tc := range map[string]struct {
		owner fieldmanagers.Owner
		want  string // what the owner gets
	}{
		"a label":                 {fieldmanagers.Owner{"argocd", apply, "rack"}, `{"f:metadata":{"f:labels":{"f:rack":{}}}}`},
		"a label that is gone":    {fieldmanagers.Owner{"argocd", apply, "tier"}, ""},
		"the marker":              {fieldmanagers.Owner{"argocd", apply, labels.Marker}, ""},
		"taints of who applies":   {fieldmanagers.Owner{"argocd", apply, "taint:dedicated:NoSchedule"}, ""},
		"taints of who updates":   {fieldmanagers.Owner{"kubectl-taint", update, "taint:dedicated:NoSchedule"}, `{"f:spec":{"f:taints":{}}}`},
		"a taint that is no more": {fieldmanagers.Owner{"kubectl-taint", update, "taint:other:NoSchedule"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			entries, err := fieldmanagers.Of([]fieldmanagers.Owner{tc.owner}).GiveBack([]metav1.ManagedFieldsEntry{entry(fieldmanagers.Processor, update, restored)}, own(), false)
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
	to := fieldmanagers.Of([]fieldmanagers.Owner{{"argocd", apply, "taint:dedicated:NoSchedule"}})
	entries, err := to.GiveBack([]metav1.ManagedFieldsEntry{entry(fieldmanagers.Processor, update, restored)}, own(), true)
	require.NoError(t, err)
	assert.Len(t, entries, 2)
	more := own()
	more["taint:gpu:NoSchedule"] = ""
	entries, err = to.GiveBack([]metav1.ManagedFieldsEntry{entry(fieldmanagers.Processor, update, restored)}, more, true)
	require.NoError(t, err)
	assert.Nil(t, entries, "the tool would remove what the kubelet registers with")
}

func TestNodekeeperIsNoOwner(t *testing.T) {
	entries, err := fieldmanagers.Of([]fieldmanagers.Owner{{fieldmanagers.Processor, update, "rack"}}).GiveBack([]metav1.ManagedFieldsEntry{entry(fieldmanagers.Processor, update, restored)}, own(), true)
	require.NoError(t, err)
	assert.Nil(t, entries)
}

func TestOwnerWithAnEntryGetsNoOther(t *testing.T) {
	to := fieldmanagers.Of([]fieldmanagers.Owner{{"argocd", apply, "rack"}})
	entries, err := to.GiveBack([]metav1.ManagedFieldsEntry{entry("argocd", apply, `{"f:metadata":{"f:labels":{"f:own":{}}}}`), entry(fieldmanagers.Processor, update, restored)}, own(), false)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	assert.JSONEq(t, `{"f:metadata":{"f:labels":{"f:own":{},"f:rack":{}}}}`, entries[0].FieldsV1.GetRawString())
	assert.NotNil(t, entries[0].Time)
}

func TestNoEntryIsForgottenForAnother(t *testing.T) {
	entries := []metav1.ManagedFieldsEntry{entry(fieldmanagers.Processor, update, restored)}
	for i := range 6 {
		entries = append(entries, entry(fmt.Sprint("tool-", i), update, `{"f:metadata":{"f:annotations":{"f:a":{}}}}`))
	}
	to := fieldmanagers.Of([]fieldmanagers.Owner{{"argocd", apply, "team"}, {"one", update, "rack"}, {"two", update, "rack"}})
	after, err := to.GiveBack(entries, own(), false)
	require.NoError(t, err)
	var managers []string
	for _, added := range after[len(entries):] {
		managers = append(managers, added.Manager)
	}
	assert.Equal(t, []string{"argocd", "one"}, managers)
}

func TestUnreadableOwners(t *testing.T) {
	_, err := fieldmanagers.Owners("no JSON").GiveBack([]metav1.ManagedFieldsEntry{entry(fieldmanagers.Processor, update, restored)}, own(), false)
	require.ErrorIs(t, err, fieldmanagers.ErrUnreadable)
	_, err = fieldmanagers.Of([]fieldmanagers.Owner{{"argocd", apply, "rack"}}).GiveBack([]metav1.ManagedFieldsEntry{entry(fieldmanagers.Processor, update, `["f:labels"]`)}, own(), false)
	require.ErrorIs(t, err, fieldmanagers.ErrUnreadable)
}
