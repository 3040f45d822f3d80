package plugin_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/ringview"
	"nodekeeper.dev/sharding/slots"
	"nodekeeper.dev/test/kubectl"
	"nodekeeper.dev/test/programs"
)

const (
	ringName = "website"
	// shardNamespace is the namespace of the shards' Leases.
	shardNamespace = "web-system"

	sharding = v1alpha1.DefaultPrefix
)

// ring creates a ring of Secrets, which control ConfigMaps.
func (e *env) ring() *v1alpha1.ClusterRing {
	e.t.Helper()
	r := &v1alpha1.ClusterRing{ObjectMeta: metav1.ObjectMeta{Name: ringName}, Spec: v1alpha1.ClusterRingSpec{
		Shards: v1alpha1.Shards{Namespace: shardNamespace},
		Resources: []v1alpha1.Resource{{
			GroupResource:       v1alpha1.GroupResource{Resource: "secrets"},
			ControlledResources: []v1alpha1.GroupResource{{Resource: "configmaps"}},
		}},
		Handover: v1alpha1.Handover{Settle: &metav1.Duration{}},
	}}
	require.NoError(e.t, e.client.Create(e.t.Context(), r))
	return r
}

// lease creates the Lease of a shard, which does not expire while the test runs.
func (e *env) lease(name string) {
	e.t.Helper()
	now := metav1.NowMicro()
	require.NoError(e.t, e.client.Create(e.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shardNamespace, Name: name, Labels: set{sharding.RingLabel(): ringName}, Annotations: set{sharding.ProtocolAnnotation(): v1alpha1.Protocol2},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(36000)), AcquireTime: &now, RenewTime: &now},
	}))
}

// statusByHand writes the status of the ring by hand, as a sharder would write it for two shards.
func (e *env) statusByHand(r *v1alpha1.ClusterRing, change func(*v1alpha1.ClusterRingStatus)) {
	e.t.Helper()
	table := slots.Table{}.With([]string{"web-0", "web-1"})
	s := v1alpha1.ClusterRingStatus{
		ObservedGeneration: r.Generation, Shards: 2, AvailableShards: 2,
		Members:           []v1alpha1.Member{{Name: "web-0", State: "ready", Slots: 512}, {Name: "web-1", State: "ready", Slots: 512}},
		Table:             &v1alpha1.Table{Generation: 7, Shards: table.Shards},
		LabelledResources: []v1alpha1.GroupResource{{Resource: "secrets"}, {Resource: "configmaps"}},
	}
	for _, shard := range table.Slots {
		s.Table.Slots = append(s.Table.Slots, int32(shard))
	}
	if change != nil {
		change(&s)
	}
	r.Status = s
	require.NoError(e.t, e.client.Status().Update(e.t.Context(), r))
}

// secretOf creates a Secret whose slot the table assigns to a shard, with these values of the
// ring's labels; "" means no label.
func (e *env) secretOf(shard, labelled, drain string) *corev1.Secret {
	e.t.Helper()
	table := slots.Table{}.With([]string{"web-0", "web-1"})
	for {
		e.secrets++
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("secret-%d", e.secrets), Labels: ringLabels(labelled, drain)}}
		at, _ := table.Shard(slots.Object{Kind: "Secret", Namespace: s.Namespace, Name: s.Name}.Key())
		if at == shard {
			require.NoError(e.t, e.client.Create(e.t.Context(), s))
			return s
		}
	}
}

// ringLabels returns the ring's labels of an object, without empty ones.
func ringLabels(shard, drain string) set {
	all := set{}
	if shard != "" {
		all[sharding.ShardLabel(ringName)] = shard
	}
	if drain != "" {
		all[sharding.DrainLabel(ringName)] = drain
	}
	return all
}

// configMapOf creates a ConfigMap that a Secret controls.
func (e *env) configMapOf(s *corev1.Secret, uid types.UID, labelled string) string {
	e.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "child-", Namespace: s.Namespace, Labels: ringLabels(labelled, "")}}
	cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: s.Name, UID: uid, Controller: new(true)}}
	require.NoError(e.t, e.client.Create(e.t.Context(), cm))
	return cm.Name
}

// owner returns the plugin's output about an object of the ring.
func (e *env) owner(t require.TestingT, args ...string) ringview.Ownership {
	var all struct {
		Kind, APIVersion string
		Rings            []ringview.Ownership
	}
	require.NoError(t, json.Unmarshal([]byte(e.Must(append(append([]string{"owner"}, args...), "-o", "json")...)), &all))
	require.Len(t, all.Rings, 1)
	assert.Equal(t, "Ownership", all.Kind)
	assert.Equal(t, ringName, all.Rings[0].Ring)
	return all.Rings[0]
}

// TestOwner covers every state that an object can have. The status of the ring is written by hand.
func TestOwner(t *testing.T) {
	t.Parallel()
	c := newEnv(t)
	assert.Contains(t, c.fails("list"), "kubectl apply -k sharding/deploy/crd", "before the CRD is installed")
	c.install()
	r := c.ring()
	c.objectsOfLiveShards(r)
	c.children()
	c.objectsOfSilentShards(r)
	c.objectsThatWait(r)
	c.objectsElsewhere()
	c.statusByHand(r, func(s *v1alpha1.ClusterRingStatus) { *s = v1alpha1.ClusterRingStatus{} })
	o := c.owner(t, "secret", c.secretOf("web-0", "", "").Name)
	assert.Equal(t, ringview.Unassigned, o.State)
	assert.Equal(t, "the ring has no shard", o.Why)
	c.mistakes()
}

func (e *env) objectsOfLiveShards(r *v1alpha1.ClusterRing) {
	t := e.t
	e.statusByHand(r, nil)
	for name, tc := range map[string]struct {
		shard, drain string
		state        ringview.State
		owner        string
		agrees       bool
		why, next    string
	}{
		"assigned":       {"web-0", "", ringview.Assigned, "web-0", true, "the table has slot", ""},
		"misplaced":      {"web-1", "", ringview.Misplaced, "web-1", false, "the shards have changed since", "sets the label drain to web-0"},
		"draining":       {"web-1", "web-0", ringview.Draining, "web-1", false, "web-1 is asked to give it to web-0", "the shard removes the label shard"},
		"needs no drain": {"web-0", "web-1", ringview.Draining, "web-0", false, "", "removes the label drain"},
		"parked":         {"", "web-0", ringview.Parked, "", false, "no shard acts on it", "moves its children, and then assigns it to web-0"},
		"unassigned":     {"", "", ringview.Unassigned, "", false, "AdmissionInstalled: not reported", "assigns it to web-0"},
		"orphaned":       {"web-9", "", ringview.Orphaned, "", false, "web-9 is not a shard of the ring", "assigns it to web-0"},
	} {
		s := e.secretOf("web-0", tc.shard, tc.drain)
		o := e.owner(t, "secret/"+s.Name)
		assert.Equal(t, tc.state, o.State, name)
		assert.Equal(t, tc.owner, o.Owner, name)
		assert.Equal(t, tc.agrees, o.Agrees, name)
		assert.Contains(t, o.Why, tc.why, name)
		if tc.next == "" {
			assert.Empty(t, o.Next, name)
		}
		assert.Contains(t, o.Next, tc.next, name)
		assert.Equal(t, "/Secret/default/"+s.Name, o.Key, name)
		assert.Equal(t, slots.Slot(o.Key), *o.Slot, name)
		assert.Equal(t, "web-0", o.Table, name)
		assert.Equal(t, tc.drain != "", o.DrainedAt != nil, name)
		require.NoError(t, e.client.Delete(t.Context(), s))
	}
}

func (e *env) children() {
	t := e.t
	main := e.secretOf("web-0", "web-0", "")
	for name, tc := range map[string]struct {
		child     string
		uid       types.UID
		state     ringview.State
		agrees    bool
		why, next string
	}{
		"with its main object":      {"web-0", main.UID, ringview.Assigned, true, "it follows secrets/" + main.Name + ", which is at web-0", ""},
		"elsewhere":                 {"web-1", main.UID, ringview.Misplaced, false, "which is at web-0", "assigns it to web-0"},
		"unassigned":                {"", main.UID, ringview.Unassigned, false, "which is at web-0", "assigns it to web-0"},
		"of a shard that is gone":   {"web-9", main.UID, ringview.Orphaned, false, "web-9 is not a shard of the ring", "assigns it to web-0"},
		"of an object that is gone": {"web-0", "former", ringview.Assigned, false, "is gone", "garbage collector"},
	} {
		o := e.owner(t, "cm", e.configMapOf(main, tc.uid, tc.child))
		assert.Equal(t, tc.state, o.State, name)
		assert.Equal(t, tc.agrees, o.Agrees, name)
		assert.Contains(t, o.Why, tc.why, name)
		assert.Contains(t, o.Next, tc.next, name)
		assert.Equal(t, "/Secret/default/"+main.Name, o.Key, "%s: the key of its main object", name)
		assert.Equal(t, main.Name, o.Main.Name, name)
	}
	child := e.configMapOf(main, main.UID, "web-0")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+sharding.DrainLabel(ringName)+`":"web-1"}}}`))
	require.NoError(t, e.client.Patch(t.Context(), main, patch))
	o := e.owner(t, "cm", child)
	assert.True(t, o.Agrees)
	assert.Contains(t, o.Next, "moves this first, to web-1")
}

func (e *env) objectsOfSilentShards(r *v1alpha1.ClusterRing) {
	t := e.t
	e.statusByHand(r, func(s *v1alpha1.ClusterRingStatus) {
		s.Members[1].State, s.Table.Next = "expired", make([]int32, slots.Count) // all at web-0
	})
	o := e.owner(t, "secret", e.secretOf("web-1", "web-1", "").Name)
	assert.Equal(t, ringview.Assigned, o.State)
	assert.Equal(t, "web-1", o.Owner)
	assert.Equal(t, "web-0", o.TableNext)
	assert.Contains(t, o.Why, "web-1 is silent (expired)")
	assert.Contains(t, o.Next, "if web-1 is found dead, the sharder assigns the object to web-0")
	o = e.owner(t, "secret", e.secretOf("web-1", "web-0", "").Name)
	assert.Equal(t, ringview.Assigned, o.State)
	assert.False(t, o.Agrees)
	assert.Contains(t, o.Why, "by table.next")
	assert.Contains(t, o.Next, "if web-1 returns")
	shown := e.Must("show", ringName)
	assert.Contains(t, shown, "new objects of 512 slots go elsewhere")
}

func (e *env) objectsThatWait(r *v1alpha1.ClusterRing) {
	t := e.t
	e.statusByHand(r, func(s *v1alpha1.ClusterRingStatus) { s.Moving = 100 })
	o := e.owner(t, "secret", e.secretOf("web-0", "web-1", "").Name)
	assert.Equal(t, ringview.Misplaced, o.State)
	assert.Contains(t, o.Next, "maxConcurrentMoves is 100")
	e.statusByHand(r, func(s *v1alpha1.ClusterRingStatus) { s.LabelledResources = nil })
	assert.Contains(t, e.owner(t, "secret", e.secretOf("web-0", "", "").Name).Why, "status.labelledResources")
	e.statusByHand(r, func(s *v1alpha1.ClusterRingStatus) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: "AdmissionInstalled", Status: metav1.ConditionTrue, Reason: "PolicyInstalled"})
	})
	assert.Contains(t, e.owner(t, "secret", e.secretOf("web-0", "", "").Name).Why, "its name was generated")
}

// objectsElsewhere covers objects that do not belong to the ring.
func (e *env) objectsElsewhere() {
	t := e.t
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "ours", Labels: ringLabels("web-0", "")}}
	require.NoError(t, e.client.Create(t.Context(), s))
	o := e.owner(t, "secret", s.Name, "-n", s.Namespace)
	assert.Equal(t, ringview.Excluded, o.State)
	assert.Empty(t, o.Owner)
	assert.Contains(t, o.Why, "leaves out namespace kube-system")
	assert.Equal(t, "the sharder removes the labels that are left", o.Next)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "alone"}}
	require.NoError(t, e.client.Create(t.Context(), cm))
	o = e.owner(t, "configmap", cm.Name)
	assert.Equal(t, ringview.Excluded, o.State)
	assert.Contains(t, o.Why, "no object controls it")
	assert.True(t, o.Agrees)
	o = e.owner(t, "ns/default", "--ring=website")
	assert.Equal(t, ringview.Excluded, o.State)
	assert.Contains(t, o.Why, "the ring does not have the resource namespaces")
}

// mistakes covers invalid commands that users type.
func (e *env) mistakes() {
	t := e.t
	s := e.secretOf("web-0", "web-0", "")
	assert.Contains(t, e.fails("show", "other"), `there is no ring "other"`)
	assert.Contains(t, e.fails("owner", "secret/"+s.Name, "--ring=other"), `there is no ring "other"`)
	assert.Contains(t, e.fails("owner", "secret/none"), `there is no secrets "none" in namespace default`)
	assert.Contains(t, e.fails("owner", "websites/none"), "kubectl api-resources")
	assert.Contains(t, e.fails("owner", "sa/default"), "no ring has the resource serviceaccounts")
	assert.Contains(t, e.refuses("owner", "secret"), "give the type and the name of an object")
	assert.Contains(t, e.refuses("owner", "secret/a", "secret/b"), "is not the type and the name of one object")
	assert.Contains(t, e.refuses("show", "a", "b"), "give the name of one ring")
	assert.Contains(t, e.refuses("list", "-o", "nonsense"), "nonsense")
	assert.Contains(t, e.refuses("list", "--label-prefix=A"), "--label-prefix")
	assert.Equal(t, "clusterring.sharding.nodekeeper.dev/website\n", e.Must("list", "-o", "name"))
	assert.Contains(t, e.Must("show", "clusterring.sharding.nodekeeper.dev/website", "-o", "jsonpath={.name}"), ringName)
	e.become("stranger")
	assert.Contains(t, e.fails("list"), "Looking at rings needs get and list of clusterrings")
	assert.Contains(t, e.fails("owner", "secret/"+s.Name), "Looking at rings needs")
}

// draining returns the number of Secrets that a shard is asked to release.
func (e *env) draining(t require.TestingT) int {
	var all corev1.SecretList
	require.NoError(t, e.client.List(e.t.Context(), &all, client.HasLabels{sharding.DrainLabel(ringName)}))
	return len(all.Items)
}

// TestPage writes the plugin's page: its help, and its output about the ring of a running sharder.
func TestPage(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.install()
	sessions := kubectl.NewSessions(strings.Fields(e.Must("--version"))[1])
	record := func(name, line string) {
		printed, code := e.Shell(t.TempDir(), "", line)
		sessions.Add(name, line, printed, code)
	}
	assert.Equal(t, "No rings found.\n", e.Run("", "list").Stderr)
	record("version", "kubectl rings version")
	sharder, err := programs.Start("sharder", "sharder-0", e.Kubeconfig, "--admission=none", "--leader-elect=false")
	require.NoError(t, err)
	e.kill(sharder)
	e.lease("web-0") // before the ring, so that the first table has it
	e.ring()
	for _, name := range []string{"s1", "s2", "s3"} {
		require.NoError(t, e.client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}))
	}
	e.balanced()
	record("owner", "kubectl rings owner secret/s2")
	e.lease("web-1")
	e.eventually(func(t *assert.CollectT) { assert.Equal(t, ringview.Draining, e.owner(t, "secret/s2").State) }, "s2 is asked for")
	record("owner", "kubectl rings owner secret/s2")
	e.eventually(func(t *assert.CollectT) {
		assert.Regexp(t, `website +True +2 +2 +`+strconv.Itoa(e.draining(t))+` +0 +False`, e.Must("list"))
	}, "the ring says what moves")
	record("list", "kubectl rings list")
	e.eventually(func(t *assert.CollectT) {
		for _, name := range []string{"s1", "s2", "s3"} {
			e.acknowledge(t, name)
		}
		o := e.owner(t, "secret/s2")
		assert.True(t, o.Agrees)
		assert.Equal(t, "web-1", o.Owner)
		assert.Contains(t, e.Must("list", "-o", "json"), `"balanced": "True"`)
	}, "s2 has moved")
	e.balanced()
	record("owner", "kubectl rings owner secret/s2 -o jsonpath='{.rings[0].owner}{\"\\n\"}'")
	record("list", "kubectl rings list")
	record("show", "kubectl rings show website")
	assert.Regexp(t, `web-0 +ready +[\dms]+ +512 +50.0% +[\dms]+ +[\dms]+ +2 +web-0\n`, e.Must("show", ringName, "-o", "wide"))
	assert.Regexp(t, `website +True +2 +2 +0 +0 +True +[\dms]+ +\d+ +web-system +secrets\n`, e.Must("list", "-o", "wide"))
	assert.Contains(t, e.Must("show", ringName, "-o", "yaml"), "sharePercent: 50")
	kubectl.Golden(t, filepath.Join("..", "..", "docs", "cli.md"), e.page(sessions.All()), *update)
}

// balanced waits until the sharder reports that no objects must move.
func (e *env) balanced() {
	e.t.Helper()
	e.eventuallyFor(3*time.Minute, func(c *assert.CollectT) {
		r := &v1alpha1.ClusterRing{}
		require.NoError(c, e.client.Get(e.t.Context(), types.NamespacedName{Name: ringName}, r))
		require.NotNil(c, r.Status.Table)
		assert.Equal(c, r.Status.Table.Generation, r.Status.BalancedGeneration)
		assert.True(c, meta.IsStatusConditionTrue(r.Status.Conditions, "Balanced"))
		assert.True(c, meta.IsStatusConditionTrue(r.Status.Conditions, "Ready"))
	})
}

func (e *env) eventuallyFor(limit time.Duration, condition func(c *assert.CollectT)) {
	e.t.Helper()
	require.EventuallyWithT(e.t, condition, limit, 2*period)
}

// acknowledge releases a Secret if its shard is asked to.
func (e *env) acknowledge(t require.TestingT, name string) {
	s := &corev1.Secret{}
	require.NoError(t, e.client.Get(e.t.Context(), types.NamespacedName{Namespace: "default", Name: name}, s))
	if s.Labels[sharding.DrainLabel(ringName)] == "" {
		return
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+sharding.ShardLabel(ringName)+`":null}}}`))
	require.NoError(t, e.client.Patch(e.t.Context(), s, patch))
}

// TestCompletion completes command lines like a shell.
func TestCompletion(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.install()
	e.ring()
	script, err := filepath.Abs(filepath.Join("..", "..", "cmd", "kubectl-rings"))
	require.NoError(t, err)
	for line, want := range map[string][]string{
		"show ":                  {ringName},
		"show web":               {ringName},
		"show website ":          nil,
		"owner secret/a --ring=": {ringName},
		"own":                    {"owner"},
	} {
		assert.ElementsMatch(t, want, e.Completions(script, line), "%q", line)
	}
	assert.Contains(t, e.Completions(script, "list --output="), "custom-columns", "the shell selects those that match")
}
