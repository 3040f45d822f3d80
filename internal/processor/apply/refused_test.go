package apply_test

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/processor/apply"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// many returns labels l00, l01 and so on.
func many(count int) set {
	all := set{}
	for i := range count {
		all[fmt.Sprintf("l%02d", i)] = "v"
	}
	return all
}

// returnedWith is like [returned] with other labels of the record and of the Node.
func returnedWith(saved, own set) (*cluster, txn.Transaction) {
	c := returned()
	c.node.Labels, c.node.Marker = maps.Clone(own), ""
	c.keep(record.Record{Node: "node-1", Labels: saved, Revision: revision.MustParse("50"), Source: "a"})
	return c, event(txn.Added, "b", "100", own)
}

func (c *cluster) count(call string) (n int) {
	for _, other := range c.calls {
		if other == call {
			n++
		}
	}
	return n
}

func TestRefusedLabelHoldsUpNoOther(t *testing.T) {
	const count = 20
	for at := range 2 * count {
		culprit := fmt.Sprintf("l%02d", at/2)
		c, added := returnedWith(many(count), set{"own": "x"})
		c.refuses, c.namesNothing = map[string]bool{culprit: true}, at%2 == 0
		reason, most := fmt.Sprintf(`nodes "node-1" is forbidden: %s is guarded`, culprit), 2
		if c.namesNothing {
			reason, most = `nodes "node-1" is forbidden: something is guarded`, bits.Len(count)+1
		}
		c.mustApply(t, added)

		want := many(count)
		delete(want, culprit)
		own, marker := c.node.Labels, c.node.Marker
		assert.Equal(t, want, own, culprit)
		assert.NotEmpty(t, marker)
		assert.Equal(t, []string{"100: " + culprit + ": " + reason}, c.refused)
		assert.LessOrEqual(t, c.count("try"), most, culprit)
		assert.Equal(t, 2, c.count("relabel"), "no more than one attempt without it")

		// It is saved, and the next incarnation, on which it is not refused, gets it.
		require.Equal(t, set{culprit: "v"}, c.stored.Record.Withheld[0].Labels)
		parsed, err := record.Parse(c.stored.Object)
		require.NoError(t, err)
		assert.Equal(t, set{culprit: reason}, parsed.Withheld[0].Refusals)
		c.refuses, c.node = nil, &nodeview.Node{Name: "node-1", UID: "c", Labels: set{"own": "x"}, Revision: revision.MustParse("3000"), Ownership: c.node.Ownership}
		c.mustApply(t, event(txn.Added, "c", "3000", set{"own": "x"}))
		own = c.node.Labels
		assert.Equal(t, many(count), own)
		assert.Empty(t, c.stored.Record.Withheld)
	}
}

// The processor's right to patch Nodes is missing, for some of the requests or for all.
func TestMissingRightSetsNoLabelAside(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-1",
		errors.New(`User "system:serviceaccount:nodekeeper-system:nodekeeper-processor" cannot patch resource "nodes" in API group "" at the cluster scope`))
	const requests = 12
	for missing := range 1 << requests {
		c, added := returnedWith(many(4), set{"own": "x"})
		request := 0
		c.before = func(call string) error {
			if call != "relabel" && call != "try" || request == requests {
				return nil
			}
			request++
			if missing>>(request-1)&1 == 1 {
				return forbidden
			}
			return nil
		}
		for attempt := 0; c.node.Marker == ""; attempt++ {
			require.Less(t, attempt, requests+1)
			settled, err := c.apply(t, added)
			require.Equal(t, err == nil, settled == 1)
			if err != nil {
				require.ErrorIs(t, err, forbidden)
			}
		}
		require.Equal(t, many(4), c.node.Labels, "%b", missing)
		require.Empty(t, c.refused)
		require.Zero(t, c.count("try"), "dry runs would not find out more")
	}
}

// The right goes while dry runs look for a label that a policy refuses.
func TestRightThatGoesDuringDryRunsSetsNoOtherLabelAside(t *testing.T) {
	unauthorized := apierrors.NewUnauthorized("the token has expired")
	for without := range 6 {
		c, added := returnedWith(many(8), set{"own": "x"})
		c.refuses, c.namesNothing = map[string]bool{"l05": true}, true
		c.before = func(call string) error {
			if call == "try" && c.count("try") == without+1 {
				return unauthorized
			}
			return nil
		}
		if _, err := c.apply(t, added); err != nil {
			require.ErrorIs(t, err, unauthorized)
			assert.Empty(t, c.refused)
			c.mustApply(t, added)
		}
		assert.Len(t, c.refused, 1)
		assert.Contains(t, c.refused[0], "l05")
	}
}

func TestSeveralRefusedLabels(t *testing.T) {
	c, added := returnedWith(set{"a": "1", "b": "1", "c": "1", "d": "1"}, set{"c": "own"})
	c.refuses = map[string]bool{"a": true, "c": true, "d": true}
	c.mustApply(t, added)
	own := c.node.Labels
	assert.Equal(t, set{"b": "1", "c": "own"}, own)
	assert.Len(t, c.refused, 3)
	c.calls = nil
	c.mustApply(t, added)
	assert.Zero(t, c.count("relabel")+c.count("try"), "this incarnation is asked no more")
}

// The machine's own value does not replace a refused one.
func TestRefusedLabelStaysSavedUntilAUserSetsIt(t *testing.T) {
	c, added := returnedWith(set{"pool": "a", "rack": "r1"}, set{"pool": "b"})
	added.Machine = "pool"
	c.node.Machine = "pool"
	c.refuses = map[string]bool{"pool": true}
	c.mustApply(t, added)
	require.Equal(t, set{"pool": "b", "rack": "r1"}, c.stored.Record.Labels)
	parsed, err := record.Parse(c.stored.Object)
	require.NoError(t, err)
	require.Len(t, parsed.Withheld, 1, "a key may be withheld while the machine has a value of its own")
	assert.Equal(t, set{"pool": "a"}, parsed.Withheld[0].Labels)

	end := event(txn.Updated, "b", "9000", set{"pool": "b", "rack": "r2"})
	end.Machine = "pool"
	c.mustApply(t, end)
	require.Len(t, c.stored.Record.Withheld, 1)

	// It is refused again on the next incarnation, whose machine has a value of its own, too.
	c.node.UID, c.node.Revision, c.node.Labels, c.node.Marker = "c", revision.MustParse("9100"), set{"pool": "b"}, ""
	again := event(txn.Added, "c", "9100", set{"pool": "b"})
	again.Machine = "pool"
	c.mustApply(t, again)
	parsed, err = record.Parse(c.stored.Object)
	require.NoError(t, err)
	require.Len(t, parsed.Withheld, 1)
	assert.Equal(t, set{"pool": "a"}, parsed.Withheld[0].Labels, "the user's value")

	c.mustApply(t, event(txn.Updated, "c", "9900", set{"pool": "c", "rack": "r2"}))
	assert.Empty(t, c.stored.Record.Withheld, "a user has set it since")
}

// A restore removes what users have put into the template of a Node, unless that is refused.
func TestRefusedRemoval(t *testing.T) {
	c, added := returnedWith(set{"a": "1", "b": "1"}, set{"template": "x", "other": "y"})
	c.refuses = map[string]bool{"template": true}
	c.mustApply(t, added)
	own := c.node.Labels
	assert.Equal(t, set{"a": "1", "b": "1", "template": "x"}, own)
	assert.Equal(t, own, c.stored.Record.Labels)
	assert.Empty(t, c.stored.Record.Withheld)
}

func TestManyRefusedLabels(t *testing.T) {
	c, added := returnedWith(many(30), nil)
	c.namesNothing = true
	c.refuses = map[string]bool{}
	for key := range many(30) {
		c.refuses[key] = true
	}
	c.mustApply(t, added)
	assert.Len(t, c.refused, 30)
	assert.LessOrEqual(t, c.count("try"), 30+2*bits.Len(30), "hardly more than one for each label")
	assert.Equal(t, 3, c.count("relabel"))
}

// The read that dry runs rest on gets too old if there are many.
func TestSearchGoesOnWithWhatItHasFound(t *testing.T) {
	c, added := returnedWith(many(30), nil)
	c.namesNothing = true
	c.refuses = map[string]bool{}
	for key := range many(30) {
		c.refuses[key] = true
	}
	c.before = func(call string) error {
		if call == "try" && c.count(call) == 25 {
			return nodes.ErrStale
		}
		return nil
	}
	c.mustApply(t, added)
	assert.Len(t, c.refused, 30)
	assert.LessOrEqual(t, c.count("try"), 30+4*bits.Len(30))
}

// Among many labels, a few dry runs for each of the refused ones are enough.
func TestFewOfManyLabelsAreRefused(t *testing.T) {
	c, added := returnedWith(many(90), nil)
	c.namesNothing = true
	c.refuses = map[string]bool{"l05": true, "l06": true, "l50": true, "l89": true}
	c.mustApply(t, added)
	own := c.node.Labels
	assert.Len(t, own, 86)
	assert.Len(t, c.refused, 4)
	assert.LessOrEqual(t, c.count("try"), 4*2*bits.Len(90))
}

// A Node that was created with another value keeps it, and that replaces the saved one no more than
// a value of its machine does.
func TestRefusedLabelStaysSavedBesideTheValueThatTheNodeCameWith(t *testing.T) {
	c, added := returnedWith(set{"pool": "a", "rack": "r1"}, set{"pool": "b"})
	c.refuses = map[string]bool{"pool": true}
	c.mustApply(t, added)
	assertSaved := func(beside set) {
		t.Helper()
		parsed, err := record.Parse(c.stored.Object)
		require.NoError(t, err)
		assert.Equal(t, beside, parsed.Labels)
		require.Len(t, parsed.Withheld, 1)
		assert.Equal(t, set{"pool": "a"}, parsed.Withheld[0].Labels)
	}
	assertSaved(set{"pool": "b", "rack": "r1"})
	c.mustApply(t, event(txn.Updated, "b", "9000", set{"pool": "b", "rack": "r2"}))
	assertSaved(set{"pool": "b", "rack": "r2"})
	c.mustApply(t, event(txn.Updated, "b", "9100", set{"pool": "c", "rack": "r2"}))
	assert.Empty(t, c.stored.Record.Withheld, "a user has set it since")
}

// A label that cannot be removed from a Node is not one that the next Node lacks.
func TestLabelThatCannotBeRemovedIsNotPutOntoTheNextNode(t *testing.T) {
	c, added := returnedWith(set{"a": "1"}, set{"template": "x"})
	c.refuses = map[string]bool{"template": true}
	gone := errors.New("gone")
	c.after = func(call string) error {
		if call == "write" {
			return gone
		}
		return nil
	}
	_, err := c.apply(t, added)
	require.ErrorIs(t, err, gone)
	assert.Equal(t, set{"a": "1"}, c.stored.Record.All())

	c.after, c.node = nil, &nodeview.Node{Name: "node-1", UID: "c", Revision: revision.MustParse("3000"), Ownership: c.node.Ownership}
	c.mustApply(t, added, event(txn.Added, "c", "3000", nil))
	own := c.node.Labels
	assert.Equal(t, set{"a": "1"}, own)
	assert.Empty(t, c.stored.Record.Withheld)
}

// The webhook has used an older record.
func TestLabelOfTheWebhookThatCannotBeRemovedStays(t *testing.T) {
	c, added := returnedWith(set{"a": "1"}, set{"old": "x"})
	c.node.Admitted = "old"
	c.refuses = map[string]bool{"old": true}
	c.mustApply(t, added)
	own := c.node.Labels
	assert.Equal(t, set{"a": "1", "old": "x"}, own)
}

// The refusal has nothing to do with the labels, or cannot be found out.
func TestRefusalOfEverything(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-1", errors.New("by policy"))
	refusing := func(calls ...string) func(c *cluster) {
		return func(c *cluster) {
			c.before = func(call string) error {
				if slices.Contains(calls, call) {
					return forbidden
				}
				return nil
			}
		}
	}
	for name, change := range map[string]func(c *cluster){
		"whatever it changes": func(c *cluster) { c.refuses = map[string]bool{labels.Marker: true} },
		"every dry run, too":  refusing("relabel", "try"),
		"but no dry run":      refusing("relabel"),
	} {
		t.Run(name, func(t *testing.T) {
			c, added := returnedWith(set{"a": "1", "b": "1", "c": "1"}, nil)
			change(c)
			settled, err := c.apply(t, added)
			assert.Zero(t, settled)
			_, isRefused := errors.AsType[*apply.RefusedError](err)
			assert.True(t, isRefused, "%v", err)
			assert.Empty(t, c.stored.Record.Withheld)
			assert.Empty(t, c.refused)
			assert.LessOrEqual(t, c.count("try"), 4)
		})
	}
}

// A component is not installed, so nodekeeper's own policy refuses what only the component allows.
// All comes back once it is installed, whatever else is refused.
func TestMissingComponentSetsNothingAside(t *testing.T) {
	const taint, annotation = "taint:dedicated:NoSchedule", "annotation:example.com/owner"
	for _, ofComponent := range []string{taint, annotation} {
		for _, refused := range []string{"", "a", "z"} {
			c, added := returnedWith(set{"a": "1", "rack": "1", "z": "1", taint: "gpu", annotation: "me"}, nil)
			isMissing := true
			c.refuses, c.refusal = map[string]bool{refused: refused != ""}, func(wanted set) error {
				if _, gets := wanted[ofComponent]; gets && isMissing {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-1", errors.New("nodekeeper's processor may not change the spec of a Node"))
				}
				return nil
			}
			_, err := c.apply(t, added)
			_, isRefused := errors.AsType[*apply.RefusedError](err)
			assert.True(t, isRefused, "%v", err)
			assert.NotContains(t, c.stored.Record.WithheldKeys(), labels.Keys(ofComponent))
			isMissing = false
			c.mustApply(t, added)
			assert.Contains(t, c.node.Labels, ofComponent)
			_, has := c.node.Labels[refused]
			assert.False(t, has)
		}
	}
}

// Another webhook changes the Node further as soon as it has a label, which nodekeeper may not.
func TestLabelThatMakesAWebhookChangeMoreIsSetAside(t *testing.T) {
	c, added := returnedWith(set{"a": "1", "pool": "1", "rack": "1"}, nil)
	c.refusal = func(wanted set) error {
		if wanted["pool"] != "" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-1", errors.New("nodekeeper's processor may not change the annotations of a Node"))
		}
		return nil
	}
	c.mustApply(t, added)
	own := c.node.Labels
	assert.Equal(t, set{"a": "1", "rack": "1"}, own)
	assert.Equal(t, labels.Keys("pool"), c.stored.Record.WithheldKeys())
}

func TestFailureWhileARefusedLabelIsSought(t *testing.T) {
	for _, call := range []string{"try", "write"} {
		c, added := returnedWith(set{"a": "1", "b": "1", "c": "1"}, nil)
		c.refuses = map[string]bool{"b": true}
		failed := errors.New("no connection")
		c.before = func(other string) error {
			if other == call && !slices.Contains(c.calls[:len(c.calls)-1], call) {
				return failed
			}
			return nil
		}
		settled, err := c.apply(t, added)
		require.ErrorIs(t, err, failed)
		require.Zero(t, settled)
		c.mustApply(t, added)
		own := c.node.Labels
		assert.Equal(t, set{"a": "1", "c": "1"}, own)
	}
}

// The processor dies after the restore without the label, before it notes it.
func TestRefusedLabelIsNotLostIfTheRestoreIsNotNoted(t *testing.T) {
	c, added := returnedWith(set{"a": "1", "b": "1"}, nil)
	c.refuses = map[string]bool{"b": true}
	died := errors.New("died")
	c.before = func(call string) error {
		if call == "write" && c.node.Marker != "" {
			return died
		}
		return nil
	}
	_, err := c.apply(t, added)
	require.ErrorIs(t, err, died)
	c.before = nil
	c.mustApply(t, added)
	assert.Equal(t, set{"a": "1"}, c.stored.Record.Labels)
	require.Len(t, c.stored.Record.Withheld, 1)
	assert.Equal(t, set{"b": "1"}, c.stored.Record.Withheld[0].Labels)
}

// An answer proves nothing by itself: in dry runs, the API server must accept the restore without
// what it names, and refuse it with that.
func TestLabelsThatAnswersName(t *testing.T) {
	forbidden := func(text string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-1", errors.New(text))
	}
	inField := func(path ...string) error {
		at := field.NewPath(path[0], path[1:len(path)-1]...).Key(path[len(path)-1])
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "node-1", field.ErrorList{field.Forbidden(at, "by policy")})
	}
	const owner = "annotation:example.com/owner"
	for name, tc := range map[string]struct {
		answer   error
		refuses  string
		mostRuns int
	}{
		"a message":                      {forbidden("label example.com/pool is immutable"), "example.com/pool", 2},
		"the end of a sentence":          {forbidden("you may not set 'example.com/pool'."), "example.com/pool", 2},
		"a path":                         {forbidden("rule x failed at /metadata/labels/example.com/pool/"), "example.com/pool", 2},
		"a cause":                        {inField("metadata", "labels", "example.com/pool"), "example.com/pool", 2},
		"an annotation":                  {inField("metadata", "annotations", "example.com/owner"), owner, 2},
		"a part of another word":         {forbidden("example.com/pool-size is immutable"), "example.com/pool", 6},
		"another one":                    {forbidden("team is immutable"), "example.com/pool", 9},
		"several":                        {forbidden("team and example.com/pool exclude each other"), "example.com/pool", 6},
		"nodekeeper's policy names them": {forbidden("nodekeeper's processor may not change the annotation example.com/owner"), "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			saved := set{"example.com/pool": "a", "team": "blue", "rack": "r7", "tier": "gold", owner: "me"}
			c, added := returnedWith(saved, nil)
			c.refusal = func(wanted set) error {
				if _, isThere := wanted[tc.refuses]; isThere || tc.refuses == "" {
					return tc.answer
				}
				return nil
			}
			settled, err := c.apply(t, added)
			assert.LessOrEqual(t, c.count("try"), tc.mostRuns)
			if tc.refuses == "" {
				require.Error(t, err)
				assert.Empty(t, c.stored.Record.Withheld)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, 1, settled)
			assert.Equal(t, labels.Keys(tc.refuses), c.stored.Record.WithheldKeys())
		})
	}
}

func TestSeveralLabelsThatAnswersName(t *testing.T) {
	c, added := returnedWith(many(30), nil)
	c.refusal = func(wanted set) error {
		for _, key := range []string{"l07", "l21"} {
			if _, isThere := wanted[key]; isThere {
				return c.guarded(key)
			}
		}
		return nil
	}
	c.mustApply(t, added)
	assert.Equal(t, 4, c.count("try"))
	assert.Equal(t, 2, c.count("relabel"))
	assert.Equal(t, labels.Keys("l07,l21"), c.stored.Record.WithheldKeys())
}

// The policy is gone by the time of the dry runs.
func TestNamedLabelIsNotSetAsideIfItIsAllowedByNow(t *testing.T) {
	c, added := returnedWith(set{"pool": "a", "rack": "r7"}, nil)
	c.before = func(call string) error {
		if call == "relabel" && c.count(call) == 1 {
			return c.guarded("pool")
		}
		return nil
	}
	_, err := c.apply(t, added)
	require.Error(t, err)
	assert.Empty(t, c.stored.Record.Withheld)
	c.mustApply(t, added)
	assert.Equal(t, set{"pool": "a", "rack": "r7"}, c.node.Labels)
}
