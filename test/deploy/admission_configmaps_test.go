package deploy_test

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

type set = map[string]string

// configMap returns a ConfigMap that change marks as nodekeeper's in one way.
func configMap(namespace string, change func(cm *corev1.ConfigMap)) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cm-" + rand.String(8)}}
	cm.Labels, cm.Annotations, cm.Data = set{"app": "x"}, set{"example.com/a": "b"}, set{"key": "value"}
	change(cm)
	return cm
}

// ours returns one ConfigMap for every way in which it can belong to nodekeeper, see
// docs/design.md, Foreign objects.
func ours() map[string]*corev1.ConfigMap {
	node := "node-" + rand.String(8)
	named := configMap(transactions, func(cm *corev1.ConfigMap) { cm.Name = strings.Repeat("0a", 32) + ".12345678901234567890" })
	return map[string]*corev1.ConfigMap{
		"a transaction":            aTransaction(node),
		"a transaction's name":     named,
		"a transaction's label":    configMap(transactions, func(cm *corev1.ConfigMap) { cm.Labels[txn.TypeLabel] = "" }),
		"a transaction's note":     configMap(transactions, func(cm *corev1.ConfigMap) { cm.Annotations["nodekeeper.dev/x"] = "" }),
		"only a label":             configMap(transactions, func(cm *corev1.ConfigMap) { cm.Labels, cm.Annotations, cm.Data = set{"nodekeeper.dev/x": ""}, nil, nil }),
		"a record":                 aRecord(node),
		"a floor":                  aFloor(node + "-gone"),
		"a record by its version":  configMap(metadata, func(cm *corev1.ConfigMap) { cm.Data["labels_restored"] = "" }),
		"a record by its manager":  configMap(metadata, func(cm *corev1.ConfigMap) { cm.Labels = set{record.ManagedByLabel: record.ManagedBy} }),
		"a record by its metadata": configMap(metadata, func(cm *corev1.ConfigMap) { cm.Annotations = set{record.AwaySinceAnnotation: "x"} }),
	}
}

// foreign returns foreign ConfigMaps that resemble nodekeeper's.
func foreign() map[string]*corev1.ConfigMap {
	nothing := func(*corev1.ConfigMap) {}
	rename := func(name string) func(cm *corev1.ConfigMap) { return func(cm *corev1.ConfigMap) { cm.Name = name } }
	return map[string]*corev1.ConfigMap{
		"in the transaction namespace": configMap(transactions, nothing),
		"in the metadata namespace":    configMap(metadata, nothing),
		"empty":                        {ObjectMeta: metav1.ObjectMeta{Namespace: metadata, Name: "e-" + rand.String(8)}},
		"empty, of a transaction":      {ObjectMeta: metav1.ObjectMeta{Namespace: transactions, Name: "e-" + rand.String(8)}},
		"a short hash":                 configMap(transactions, rename(strings.Repeat("0", 63)+".7")),
		"a hash in other letters":      configMap(transactions, rename(strings.Repeat("g", 64)+".7")),
		"a revision from zero":         configMap(transactions, rename(strings.Repeat("0", 64)+".07")),
		"no revision":                  configMap(transactions, rename(strings.Repeat("0", 64))),
		"a transaction's name":         configMap(metadata, rename(strings.Repeat("0", 64)+".7")),
		"a record's key":               configMap(transactions, func(cm *corev1.ConfigMap) { cm.Data["labels_restored"] = "7" }),
		"managed by others":            configMap(metadata, func(cm *corev1.ConfigMap) { cm.Labels[record.ManagedByLabel] = "helm" }),
		"another domain":               configMap(metadata, func(cm *corev1.ConfigMap) { cm.Annotations["nodekeeper.development/x"] = "" }),
		"a label, no annotation":       configMap(metadata, func(cm *corev1.ConfigMap) { cm.Labels["nodekeeper.dev/x"] = "" }),
		"the cluster's root": configMap(metadata, func(cm *corev1.ConfigMap) {
			cm.Name, cm.Annotations = record.RootCAName, set{"nodekeeper.dev/x": ""}
		}),
	}
}

// The policy and the programs implement the same rule in different languages.
func TestPolicyAndProgramsAgreeOnForeignObjects(t *testing.T) {
	t.Parallel()
	belongs := map[string]func(*corev1.ConfigMap) bool{transactions: txn.Ours, metadata: record.Ours}
	for name, cm := range ours() {
		assert.True(t, belongs[cm.Namespace](cm), name)
	}
	for name, cm := range foreign() {
		assert.False(t, belongs[cm.Namespace](cm), name)
	}
}

// add creates an object, which is deleted when the test ends.
func add[T client.Object](t *testing.T, c client.Client, obj T) T {
	t.Helper()
	require.NoError(t, c.Create(t.Context(), obj))
	t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), obj))) })
	return obj
}

func TestOnlyNodekeeperWritesItsConfigMaps(t *testing.T) {
	c := newCluster(t, rest.NoWarnings{})
	install(t, c)
	for who, forger := range map[string]client.Client{"edit": editor(t, c), "admin": admin(t, c)} {
		for what, cm := range ours() {
			t.Run(who+"/"+what, func(t *testing.T) {
				ctx := t.Context()
				refused(t, forger.Create(ctx, cm.DeepCopy()), needed, "create")
				there := add(t, c, cm)
				changed := there.DeepCopy()
				changed.Labels = maps.Clone(changed.Labels)
				changed.Annotations = set{"example.com/other": "x"}
				changed.Labels["rack"] = "r9"
				refused(t, forger.Update(ctx, changed), needed, "update")
				refused(t, forger.Patch(ctx, there.DeepCopy(), merge(`{"metadata":{"annotations":{"rack":"r9"}}}`)), needed, "patch")
				// A ConfigMap that nodekeeper no longer recognizes is lost, too.
				refused(t, forger.Patch(ctx, there.DeepCopy(), merge(`{"metadata":{"labels":null,"annotations":null,"finalizers":["a.b/c"]}}`)),
					needed, "no longer ours")
				refused(t, forger.Delete(ctx, there.DeepCopy()), needed, "delete")
				refused(t, forger.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(there.Namespace)), needed, "delete collection")
				assert.NoError(t, forger.Update(ctx, there.DeepCopy()), "a storage migration changes nothing")
				require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(there), changed))
				assert.Equal(t, there, changed, "it is as it was")
			})
		}
	}
}

func TestForeignConfigMapsCannotBecomeOurs(t *testing.T) {
	c := newCluster(t, rest.NoWarnings{})
	install(t, c)
	forger := editor(t, c)
	for name, tc := range map[string]struct{ namespace, patch string }{
		"a label":       {transactions, `{"metadata":{"labels":{"nodekeeper.dev/type":"added"}}}`},
		"an annotation": {transactions, `{"metadata":{"annotations":{"nodekeeper.dev/node":"a"}}}`},
		"a version":     {metadata, `{"data":{"labels_restored":"7"}}`},
		"a manager":     {metadata, `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"nodekeeper"}}}`},
		"a floor":       {metadata, `{"metadata":{"annotations":{"nodekeeper.dev/forgotten":"7"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			there := add(t, c, configMap(tc.namespace, func(*corev1.ConfigMap) {}))
			refused(t, forger.Patch(t.Context(), there.DeepCopy(), merge(tc.patch)), needed)
			applied := client.RawPatch(types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"ConfigMap",`+tc.patch[1:]))
			refused(t, forger.Patch(t.Context(), there.DeepCopy(), applied, client.FieldOwner("forger"), client.ForceOwnership), needed)
		})
	}
	generated := configMap(transactions, func(cm *corev1.ConfigMap) {
		cm.Name, cm.GenerateName = "", "generated-"
		cm.Labels["nodekeeper.dev/type"] = "added"
	})
	refused(t, forger.Create(t.Context(), generated), needed)
	// Use very many keys: the cost of evaluating a policy is limited.
	large := configMap(transactions, func(cm *corev1.ConfigMap) {
		for i := range 30_000 {
			cm.Annotations[strconv.FormatInt(int64(36*36*36+i), 36)] = ""
		}
		cm.Annotations["nodekeeper.dev/node"] = "a"
	})
	refused(t, forger.Create(t.Context(), large), needed)
}

func TestForeignConfigMapsPass(t *testing.T) {
	c := newCluster(t, rest.NoWarnings{})
	install(t, c)
	user := editor(t, c)
	for name, cm := range foreign() {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			there := add(t, user, cm)
			there.Labels, there.Data = set{"app": "y"}, set{"other": "value"}
			assert.NoError(t, user.Update(ctx, there))
			assert.NoError(t, user.Patch(ctx, there, merge(`{"metadata":{"annotations":null,"labels":{"b":"c"}}}`)))
			assert.NoError(t, user.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(there.Namespace), client.MatchingLabels{"b": "c"}))
			assert.Error(t, c.Get(ctx, client.ObjectKeyFromObject(there), there), "it is gone")
		})
	}
	elsewhere := aTransaction("node")
	elsewhere.Namespace = metav1.NamespaceDefault
	add(t, user, elsewhere)
}

// The cost of evaluating a policy is limited.
func TestLargestOfOursPass(t *testing.T) {
	t.Parallel()
	c := newCluster(t, rest.NoWarnings{})
	install(t, c)
	labels := set{}
	for i := range 16_000 {
		labels[strconv.Itoa(100_000+i)] = strings.Repeat("x", 60)
	}
	saved := record.Record{Node: "large-" + rand.String(5), Revision: revision.MustParse("7"), Labels: labels}
	processor := accountOf(t, c, "processor")
	there := add(t, c, saved.ConfigMap(metadata))
	other := record.Record{Node: "other-large", Revision: saved.Revision, Labels: labels}
	assert.NoError(t, processor.Create(t.Context(), other.ConfigMap(metadata), client.DryRunAll))
	saved.Labels["100000"], saved.Revision = "y", revision.MustParse("8")
	saved.Write(there)
	assert.NoError(t, processor.Update(t.Context(), there))
	tx := txn.Transaction{Type: txn.Deleted, Node: "large", UID: "u", Revision: revision.MustParse("7"), Labels: labels}
	assert.NoError(t, accountOf(t, c, "watcher").Create(t.Context(), tx.ConfigMap(transactions), client.DryRunAll))
}

// No other Lease influences the saved data.
func TestTimeOfAbsenceCannotBeForged(t *testing.T) {
	t.Parallel()
	c := newCluster(t, rest.NoWarnings{})
	installObjects(t, c, variant{base, []string{withRetention}}.render(t))
	forger := editor(t, c)
	refused(t, forger.Create(t.Context(), retentionLease()), needed, "create")
	there := retentionLease()
	require.NoError(t, accountOf(t, c, "processor").Create(t.Context(), there))
	t.Cleanup(func() { assert.NoError(t, c.Delete(context.WithoutCancel(t.Context()), there)) })
	changed := there.DeepCopy()
	changed.Spec.HolderIdentity = new("forger")
	refused(t, forger.Update(t.Context(), changed), needed, "update")
	refused(t, forger.Delete(t.Context(), there.DeepCopy()), needed, "delete")
	refused(t, forger.DeleteAllOf(t.Context(), &coordinationv1.Lease{}, client.InNamespace(metadata)), needed, "delete collection")
	assert.NoError(t, forger.Update(t.Context(), there.DeepCopy()), "a storage migration changes nothing")
	other := retentionLease()
	other.Name = "another"
	require.NoError(t, forger.Create(t.Context(), other))
	assert.NoError(t, forger.Delete(t.Context(), other))
	assert.NoError(t, accountOf(t, c, "processor").Update(t.Context(), changed))
}

// The storage migration controller of Kubernetes applies an object that contains only its name.
func TestMigrationOfStorageIsNoChange(t *testing.T) {
	t.Parallel()
	c := newCluster(t, rest.NoWarnings{})
	install(t, c)
	there := add(t, c, aRecord("migrated-"+rand.String(5)))
	empty := client.RawPatch(types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"uid":"`+string(there.UID)+
		`","resourceVersion":"`+there.ResourceVersion+`"}}`))
	assert.NoError(t, editor(t, c).Patch(t.Context(), there, empty, client.FieldOwner("storage-version-migrator-controller")))
}
