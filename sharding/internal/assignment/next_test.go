package assignment

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"nodekeeper.dev/internal/daemon/signal"
	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/handover"
	"nodekeeper.dev/sharding/internal/place"
)

var (
	secrets    = v1alpha1.GroupResource{Resource: "secrets"}
	configMaps = v1alpha1.GroupResource{Resource: "configmaps"}
)

// scene is a ring of Secrets, which control ConfigMaps, with the live shards web-0 and web-1.
type scene struct {
	main, child kind
	situation   situation
	// name is the name of a Secret that the table assigns to web-1.
	name string
}

func newScene() *scene {
	v := viewOf(nil, []string{"web-0", "web-1"})
	v.ring.Status.LabelledResources = []v1alpha1.GroupResource{secrets, configMaps}
	v.ring.Spec.Handover.DrainTimeout = &metav1.Duration{Duration: time.Minute}
	v.selection = place.Only("n")
	k := keys{shard: "shard", drain: "drain", children: "children"}
	mapping := func(resource, name string) *meta.RESTMapping {
		return &meta.RESTMapping{Resource: schema.GroupVersionResource{Version: "v1", Resource: resource}, GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: name}, Scope: meta.RESTScopeNamespace}
	}
	s := &scene{
		main:      kind{resource: secrets, main: &v1alpha1.Resource{GroupResource: secrets, ControlledResources: []v1alpha1.GroupResource{configMaps}}, mapping: mapping("secrets", "Secret"), keys: k},
		child:     kind{resource: configMaps, mapping: mapping("configmaps", "ConfigMap"), keys: k},
		situation: situation{view: v, now: time.Unix(1000, 0)},
	}
	for i := 0; s.name == ""; i++ {
		name := strconv.Itoa(i)
		object := place.Main(schema.GroupKind{Kind: "Secret"}, "n", name)
		if v.table.Of(place.Key(*s.main.main, nil, object)).Now == "web-1" {
			s.name = name
		}
	}
	return s
}

// version returns version 10 of the Secret with these labels.
func (s *scene) version(labels map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: s.name, UID: "u", ResourceVersion: "10", Labels: labels}}
}

func at(shard string) map[string]string { return map[string]string{"shard": shard} }

func draining(shard, to string) map[string]string {
	return map[string]string{"shard": shard, "drain": to}
}

func parked(to string) map[string]string { return map[string]string{"drain": to} }

// TestNextStepOfEachState covers each state of a main object.
func TestNextStepOfEachState(t *testing.T) {
	t.Parallel()
	s := newScene()
	since := s.situation.now.Add(-10 * time.Second)
	full, empty, other := s.situation, s.situation, s.situation
	full.isFull = true
	empty.view = &view{ring: s.situation.view.ring, selection: s.situation.view.selection}
	other.view = viewOf(nil, []string{"web-0", "web-1"})
	unsettled := s.situation
	unsettled.settled = s.situation.now.Add(3 * time.Second)
	of := func(l life) object { l.uid = "u"; return object{life: l} }
	const to = "web-1"
	moved := childrenMove{to: to, isDone: true, versions: map[string]string{"configmaps": "9"}}
	balance := handover.Balance
	for name, tc := range map[string]struct {
		labels map[string]string
		known  object
		in     situation
		want   step
		then   object
	}{
		"new":                                     {nil, object{}, s.situation, step{do: assign, to: to}, object{}},
		"new, without shards":                     {nil, object{}, empty, step{do: rest}, object{}},
		"where it belongs":                        {at(to), object{}, s.situation, step{do: rest}, object{}},
		"where it belongs, with an empty drain":   {draining(to, ""), object{}, s.situation, step{do: undrain}, object{}},
		"at another shard":                        {at("web-0"), object{}, s.situation, step{do: startDrain, to: to, why: balance}, object{}},
		"at another shard, too many move":         {at("web-0"), object{}, full, step{do: awaitMove, to: to, why: balance}, object{}},
		"drained since an unknown time":           {draining("web-0", to), object{}, s.situation, step{do: wait, to: to, why: balance, after: time.Minute}, object{}},
		"drained":                                 {draining("web-0", to), of(life{drain: drain{to: to, since: since}}), s.situation, step{do: wait, to: to, why: balance, after: 50 * time.Second}, of(life{drain: drain{to: to, since: since}})},
		"drained for too long":                    {draining("web-0", to), of(life{drain: drain{to: to, since: since.Add(-time.Minute)}}), s.situation, step{do: reportLate, to: to, why: balance}, of(life{drain: drain{to: to, since: since.Add(-time.Minute), isLate: true}})},
		"drained for too long, and reported":      {draining("web-0", to), of(life{drain: drain{to: to, since: since.Add(-time.Minute), isLate: true}}), s.situation, step{do: wait, to: to, why: balance}, of(life{drain: drain{to: to, since: since.Add(-time.Minute), isLate: true}})},
		"drained, and belongs to its shard":       {draining(to, "web-0"), object{}, s.situation, step{do: undrain}, object{}},
		"parked":                                  {parked(to), object{}, s.situation, step{do: moveChildren, to: to, why: handover.Released}, of(life{children: childrenMove{to: to}})},
		"parked, its children move":               {parked(to), of(life{children: childrenMove{to: to}}), s.situation, step{do: moveChildren, to: to, why: handover.Released}, of(life{children: childrenMove{to: to}})},
		"parked, other writes may arrive":         {parked(to), of(life{children: childrenMove{to: "web-0"}}), unsettled, step{do: awaitWrites, to: to, why: handover.Released, after: 3 * time.Second}, of(life{children: childrenMove{to: "web-0"}})},
		"parked, its children have moved":         {parked(to), of(life{children: moved}), s.situation, step{do: assign, to: to, why: handover.Released, versions: moved.versions}, of(life{children: moved})},
		"parked, its children are elsewhere":      {parked("web-0"), of(life{children: moved}), s.situation, step{do: moveChildren, to: "web-0", why: handover.Released}, of(life{children: childrenMove{to: "web-0"}})},
		"parked for a dead shard":                 {parked("web-9"), object{}, s.situation, step{do: startDrain, to: to, why: handover.Released}, object{}},
		"parked, without shards":                  {parked("web-9"), object{}, empty, step{do: rest}, object{}},
		"at a dead shard":                         {at("web-2"), object{}, s.situation, step{do: park, premise: isGone, to: to, why: handover.Dead}, of(life{taken: handover.Dead})},
		"parked as its shard was dead":            {parked(to), of(life{taken: handover.Dead, children: moved}), s.situation, step{do: assign, to: to, why: handover.Dead, versions: moved.versions}, of(life{taken: handover.Dead, children: moved})},
		"parked by force":                         {parked(to), of(life{taken: handover.Forced, children: moved}), s.situation, step{do: assign, to: to, why: handover.Forced, versions: moved.versions}, of(life{taken: handover.Forced, children: moved})},
		"at a dead shard, without shards":         {at("web-2"), object{}, empty, step{do: rest}, object{}},
		"at a live shard, which creates children": {at(to), of(life{children: moved}), s.situation, step{do: rest}, object{}},
		"of another UID":                          {at("web-0"), object{life: life{uid: "before", taken: handover.Dead, children: moved}}, s.situation, step{do: startDrain, to: to, why: balance}, object{}},
		"older than the latest version":           {at("web-0"), object{latest: "11"}, s.situation, step{do: catchUp}, object{latest: "11"}},
		"as the latest version":                   {at(to), object{latest: "10"}, s.situation, step{do: rest}, object{}},
		"of a resource that is not labelled":      {at("web-0"), object{}, other, step{do: wait}, object{}},
	} {
		do, then := s.main.next(s.version(tc.labels), tc.known, tc.in)
		assert.Equal(t, tc.want, do, name)
		if then.latest == "10" { // the step has looked at this version
			then.latest = ""
		}
		if then.isEmpty() {
			then = object{}
		}
		assert.Equal(t, tc.then, then, name)
	}
}

func TestNextStepOutsideAHandover(t *testing.T) {
	t.Parallel()
	s := newScene()
	outside := s.situation
	outside.view = &view{ring: s.situation.view.ring, live: s.situation.view.live, table: s.situation.view.table, selection: place.Only("other")}
	for name, tc := range map[string]struct {
		of   kind
		m    *metav1.PartialObjectMetadata
		in   situation
		want step
	}{
		"no watch shows it":                           {s.main, nil, s.situation, step{do: end}},
		"its namespace has left":                      {s.main, s.version(at("web-0")), outside, step{do: leave, premise: isOutside}},
		"its namespace has left while it was drained": {s.main, s.version(parked("web-0")), outside, step{do: leave, premise: isOutside}},
		"it was never in the ring":                    {s.main, s.version(nil), outside, step{do: rest}},
		"a child without a shard":                     {s.child, s.version(nil), s.situation, step{do: follow}},
		"a child at a live shard":                     {s.child, s.version(at("web-0")), s.situation, step{do: follow}},
		"a child at a dead shard":                     {s.child, s.version(at("web-2")), s.situation, step{do: follow, premise: isGone}},
	} {
		do, then := tc.of.next(tc.m, object{}, tc.in)
		assert.Equal(t, tc.want, do, name)
		then.latest = ""
		assert.True(t, then.isEmpty(), name)
	}
}

func TestChildFollowsItsController(t *testing.T) {
	t.Parallel()
	s := newScene()
	for name, tc := range map[string]struct {
		shard        string
		hasDrain     bool
		ofController string
		to           string
		isMoving     bool
	}{
		"without a shard":                                {"", false, "web-0", "web-0", false},
		"at another shard":                               {"web-1", false, "web-0", "web-0", false},
		"at a dead shard":                                {"web-2", false, "web-0", "web-0", false},
		"at the shard of its controller":                 {"web-0", false, "web-0", "", false},
		"which was a main object":                        {"web-0", true, "web-0", "web-0", false},
		"with a controller without a shard":              {"web-0", false, "", "", true},
		"with a controller without a shard, like itself": {"", false, "", "", true},
		"with a controller at a dead shard":              {"web-0", false, "web-2", "", true},
	} {
		to, isMoving := nextOfChild(tc.shard, tc.hasDrain, tc.ofController, s.situation.view)
		assert.Equal(t, tc.to, to, name)
		assert.Equal(t, tc.isMoving, isMoving, name)
	}
}

// TestDrainIsTimedFromItsFirstVersion: a version with another target begins another drain, and an
// object with another UID is another object.
func TestDrainIsTimedFromItsFirstVersion(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1000, 0)
	later := begin.Add(time.Second)
	known := object{}.drained("web-1", "u", begin)
	assert.Equal(t, life{uid: "u", drain: drain{to: "web-1", since: begin}}, known.life)
	assert.Equal(t, known, known.drained("web-1", "u", later))
	assert.Equal(t, life{uid: "u", drain: drain{to: "web-2", since: later}}, known.drained("web-2", "u", later).life)
	assert.Equal(t, life{uid: "new", drain: drain{to: "web-1", since: later}}, known.drained("web-1", "new", later).life)
	assert.True(t, known.undrained("u").isEmpty())
	dead := object{life: life{uid: "u", taken: handover.Dead}}
	assert.Equal(t, dead, dead.drained("web-1", "u", later), "no shard has to release it")
	assert.Equal(t, known, known.undrained("before"))
}

// TestForceActsOnlyBehindAFence covers R30: with onTimeout Force, an object is taken from a live
// shard if the status shows that the fence works, and a dry run confirms it.
func TestForceActsOnlyBehindAFence(t *testing.T) {
	t.Parallel()
	s := newScene()
	const to = "web-1"
	ring := s.situation.view.ring
	ring.Spec.Fence, ring.Spec.Handover.OnTimeout = v1alpha1.FenceDeny, v1alpha1.Force
	late := object{life: life{uid: "u", drain: drain{to: to, since: s.situation.now.Add(-time.Minute)}}}
	got, _ := s.main.next(s.version(draining("web-0", to)), late, s.situation)
	assert.Equal(t, step{do: reportLate, to: to, why: handover.Balance}, got, "without a fence")
	before := &view{ring: ring.DeepCopy()}
	ring.Status.Conditions = []metav1.Condition{{Type: place.FenceInstalled, Status: metav1.ConditionTrue, Reason: place.FenceWorks}}
	late.life.drain.isLate = true
	got, _ = s.main.next(s.version(draining("web-0", to)), late, s.situation)
	assert.Equal(t, step{do: park, premise: isFenced, to: to, why: handover.Forced}, got, "with a fence, also after the report")
	alone := s.main
	alone.main = &v1alpha1.Resource{GroupResource: secrets}
	got, _ = alone.next(s.version(draining("web-0", to)), late, s.situation)
	assert.Equal(t, step{do: assign, premise: isFenced, to: to, why: handover.Forced}, got, "it has no children")
	assert.False(t, (&view{ring: ring}).decidesLike(before), "late objects are looked at again")

	for _, works := range []bool{true, false} {
		a := &assigner{Controller: &Controller{Fenced: func(_ context.Context, _ *v1alpha1.ClusterRing, shard string) (bool, error) {
			assert.Equal(t, "web-0", shard)
			return works, nil
		}}}
		_, cancel, holds, err := (&tracker{of: a, kind: s.main}).confirm(t.Context(), s.situation.view, s.version(draining("web-0", to)), isFenced)
		require.NoError(t, err)
		cancel()
		assert.Equal(t, works, holds)
	}
}

// TestForceThatWaitsIsReported covers R30: the status can show a fence that a live check does not.
// The shard is then reported as late, once.
func TestForceThatWaitsIsReported(t *testing.T) {
	t.Parallel()
	s := newScene()
	s.situation.view.ring.Spec.Handover.OnTimeout = v1alpha1.Force
	recorder := events.NewFakeRecorder(10)
	m := s.version(draining("web-0", "web-1"))
	of := &tracker{kind: s.main, objects: map[types.NamespacedName]object{}, of: &assigner{
		Controller: &Controller{Recorder: recorder, clock: func() time.Time { return s.situation.now }}, view: s.situation.view, dirty: signal.New(),
	}}
	of.objects[keyFor(m)] = object{life: life{uid: m.UID, drain: drain{to: "web-1", since: s.situation.now}}}
	for range 2 {
		of.waitForFence(s.situation.view, keyFor(m), m)
	}
	late, _ := of.drainedLongest()
	assert.Equal(t, 1, late)
	require.Len(t, recorder.Events, 2)
	assert.Contains(t, <-recorder.Events, "DrainTimeout")
	assert.Contains(t, <-recorder.Events, "whether pod web-0 has a service account of the ring")
}
