package program

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/slots"
)

// TestAdmissionNeedsNoSharder covers R37: policies assign by the last table. The next sharder
// removes the policies of rings that were deleted meanwhile.
func TestAdmissionNeedsNoSharder(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	c.needPolicies()
	only := c.sharder("a")
	ring := c.admitting(c.ring(""), "web-0", "web-1")
	gone := c.admitting(c.ring("-gone"))
	require.NoError(t, only.Stop(stopTimeout))
	for i := range 10 {
		s := secret(c.namespace, fmt.Sprintf("s-%d", i))
		c.stores(s)
		assert.Equal(t, placed(ring, slots.Object{Kind: "Secret", Namespace: c.namespace, Name: s.Name}.Key()), s.Labels[prefix.ShardLabel(ring.Name)])
	}
	c.survivesBadTables(ring)
	for _, r := range []*v1alpha1.ClusterRing{ring, gone} {
		require.NoError(t, c.Delete(t.Context(), r))
		c.update(r, func(r *v1alpha1.ClusterRing) { r.Finalizers = nil }) // no sharder is running to do it
	}
	for i := range 20 { // while the API server learns about the deletion
		c.stores(secret(c.namespace, fmt.Sprintf("no-ring-%d", i)))
	}
	again := c.create(c.ring(""))
	require.NotEqual(t, ring.UID, again.UID)
	c.sharder("b")
	c.hasNoPolicies(gone)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		for _, o := range c.policies(t, again) {
			assert.Equal(t, again.UID, metav1.GetControllerOf(o).UID, o.GetName())
		}
	}, patience, period)
}

// survivesBadTables checks a part of R16: objects are admitted, without a label, whatever a user
// writes into the table while no sharder restores it.
func (c *cluster) survivesBadTables(ring *v1alpha1.ClusterRing) {
	c.t.Helper()
	var probe string // its slot is neither in the first row nor the first of a row
	for i, slot := 0, 0; slot/32 == 0 || slot%32 == 0; i++ {
		probe = fmt.Sprintf("probe-%d", i)
		slot = slots.Slot(slots.Object{Kind: "Secret", Namespace: c.namespace, Name: probe}.Key())
	}
	indexes := func(i string, rows, each int) string {
		row := strings.TrimSuffix(strings.Repeat(i+",", each), ",")
		return strings.TrimSuffix(strings.Repeat(row+";", rows), ";")
	}
	writes := func(name, shards, rows, want string) {
		c.t.Helper()
		table := c.table(c.t, ring)
		require.NotNil(c.t, table)
		table.Data = map[string]string{"shards": shards, "rows": rows}
		require.NoError(c.t, c.Update(c.t.Context(), table), name)
		require.EventuallyWithT(c.t, func(t *assert.CollectT) {
			s := secret(c.namespace, probe)
			require.NoError(t, c.Create(c.t.Context(), s, client.DryRunAll), name)
			assert.Equal(t, want, s.Labels[prefix.ShardLabel(ring.Name)], name)
		}, patience, period)
	}
	for name, bad := range map[string][2]string{
		"no label value": {"not a label value", indexes("0", 32, 32)},
		"out of range":   {"web-0", indexes("1", 32, 32)},
		"negative":       {"web-0", indexes("-1", 32, 32)},
		"no numbers":     {"web-0", indexes("x", 32, 32)},
		"large numbers":  {"web-0", indexes("99999999999999999999", 32, 32)},
		"short":          {"web-0", indexes("0", 1, 1)},
		"short rows":     {"web-0", indexes("0", 32, 1)},
		"one row":        {"web-0", indexes("0", 1, slots.Count)},
		"long":           {"web-0", indexes("0", 1, 100_000)},
		"empty rows":     {"web-0", indexes("", 32, 1)},
		"no rows":        {"web-0", ""},
	} {
		writes(name, bad[0], bad[1], "")
		writes(name, "good", indexes("0", 32, 32), "good")
	}
}

// table returns the ConfigMap with the table of a ring, or nil if there is none.
func (c *cluster) table(t require.TestingT, ring *v1alpha1.ClusterRing) *corev1.ConfigMap {
	table := &corev1.ConfigMap{}
	err := c.Get(c.t.Context(), types.NamespacedName{Namespace: sharderNamespace, Name: "sharding-table-" + ring.Name}, table)
	require.NoError(t, client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return table
}

// policies returns the policies and webhooks that are installed for a ring. An API server that does not
// serve the kind has none.
func (c *cluster) policies(t require.TestingT, ring *v1alpha1.ClusterRing) (all []client.Object) {
	for _, o := range []client.Object{
		withName(&admissionregistrationv1.MutatingAdmissionPolicy{}, "sharding-assign-"+ring.Name), withName(&admissionregistrationv1.MutatingAdmissionPolicyBinding{}, "sharding-assign-"+ring.Name),
		withName(&admissionregistrationv1.MutatingAdmissionPolicy{}, "sharding-stick-"+ring.Name), withName(&admissionregistrationv1.MutatingAdmissionPolicyBinding{}, "sharding-stick-"+ring.Name),
		withName(&admissionregistrationv1.MutatingWebhookConfiguration{}, "sharding-"+ring.Name),
	} {
		err := c.Get(c.t.Context(), client.ObjectKeyFromObject(o), o)
		if meta.IsNoMatchError(err) {
			continue
		}
		require.NoError(t, client.IgnoreNotFound(err))
		if err == nil {
			all = append(all, o)
		}
	}
	return all
}

// withName gives an object a name.
func withName(o client.Object, name string) client.Object {
	o.SetName(name)
	return o
}

// objects returns how many objects install the admission of a ring.
func (c *cluster) objects() int {
	if c.byWebhook {
		return 1
	}
	return 4
}

func (c *cluster) hasNoPolicies(ring *v1alpha1.ClusterRing) {
	c.t.Helper()
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		assert.Empty(t, c.policies(t, ring))
		assert.Nil(t, c.table(t, ring))
	}, patience, period)
}

// The policies are restored if another client deletes or changes them. Policies of another owner
// are not overwritten.
func TestPoliciesGoWithTheirRing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	ring := c.admitting(c.ring(""), "web-0")
	all := c.policies(t, ring)
	require.Len(t, all, c.objects())
	for _, o := range all {
		assert.Equal(t, ring.UID, metav1.GetControllerOf(o).UID, o.GetName())
		require.NoError(t, c.Delete(t.Context(), o))
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) { assert.Len(t, c.policies(t, ring), c.objects()) }, patience, period)
	require.NoError(t, c.Delete(t.Context(), ring))
	c.hasNoPolicies(ring)
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(ring), ring))
	}, patience, period, "the ring is gone, too")

	var foreign client.Object = &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "sharding-stick-" + ring.Name},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "foreign"},
	}
	if c.byWebhook {
		foreign = &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "sharding-" + ring.Name}}
	}
	c.stores(foreign)
	again := c.create(c.ring(""))
	c.lease(again, "web-1", 600, 0)
	c.eventually(again, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		admitted(t, s, metav1.ConditionFalse, "InstallFailed")
		ready := meta.FindStatusCondition(s.Conditions, "Ready")
		require.NotNil(t, ready)
		assert.Equal(t, "AdmissionMissing", ready.Reason)
	})
	c.event(again, "InstallFailed")
	c.event(again, "AdmissionMissing")
	require.NoError(t, c.Delete(t.Context(), foreign))
	c.eventually(again, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.installed(t, s)
		assert.True(t, meta.IsStatusConditionTrue(s.Conditions, "Ready"))
	})
}

// counter counts some requests.
type counter struct {
	counts func(*http.Request) bool
	count  atomic.Int64
}

func (c *counter) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, _ <-chan struct{}) {
	if c.counts(r) {
		c.count.Add(1)
	}
	next.ServeHTTP(w, r)
}

// isWrite reports whether a request writes anything but a Lease, as the leader renews its own.
func isWrite(r *http.Request) bool {
	return r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/leases")
}

// This also holds after a restart of the sharder. Without admission, the policies are removed.
func TestIdleRingCausesNoWrites(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	c.needPolicies()
	direct := c.kubeconfig
	proxy := c.behindProxy()
	first := c.sharder("a")
	ring := c.admitting(c.ring(""), "web-0")
	idle := &counter{counts: isWrite}
	heal := proxy.Inject(idle)
	const quiet = 11 * time.Second // longer than all retry periods
	last, since := idle.count.Load(), time.Now()
	require.Eventually(t, func() bool { // the last events and status updates arrive when the ring is ready
		if n := idle.count.Load(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > quiet
	}, patience, 2*period, "it writes again and again")
	heal()
	versions := func() (all []string) {
		for _, o := range c.policies(t, ring) {
			all = append(all, o.GetResourceVersion())
		}
		return all
	}
	before := versions()
	require.NoError(t, first.Stop(stopTimeout))
	second := c.sharder("b")
	require.Eventually(t, func() bool { return strings.Contains(second.Output(), `"worker count":4`) }, patience, period)
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		c.installed(t, s)
	})
	assert.Equal(t, before, versions())
	require.NoError(t, second.Stop(stopTimeout))

	c.kubeconfig = direct
	c.sharder("c", "--admission=none")
	c.eventually(ring, func(t *assert.CollectT, s *v1alpha1.ClusterRingStatus) {
		admitted(t, s, metav1.ConditionTrue, "Disabled")
	})
	c.hasNoPolicies(ring)
	c.movesWithoutAdmission(ring)
}

// movesWithoutAdmission checks that released objects are reassigned soon (F10: upstream's sharder
// only removes the label, and without its webhook the object has no shard for five minutes). The
// ring has one shard.
func (c *cluster) movesWithoutAdmission(ring *v1alpha1.ClusterRing) {
	c.t.Helper()
	for i := range 20 {
		c.secret(fmt.Sprintf("s-%d", i))
	}
	c.eventually(ring, func(t *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		assert.Equal(t, map[string]int{"web-0": 20}, c.shardsOf(t, ring))
	})
	c.lease(ring, "web-1", 600, 0)
	began := time.Now()
	s, d := prefix.ShardLabel(ring.Name), prefix.DrainLabel(ring.Name)
	release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+s+`":null,"`+d+`":null}}}`)) // protocol 1
	c.eventually(ring, func(t *assert.CollectT, status *v1alpha1.ClusterRingStatus) {
		for _, o := range c.draining(t, ring) {
			require.NoError(t, c.Patch(c.t.Context(), &o, release))
		}
		c.inPlace(t, ring, status)
		assert.Len(t, c.shardsOf(t, ring), 2)
	})
	assert.Less(c.t, time.Since(began), 4*time.Minute)
}
