package processor_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// frozen is a cache without the changes of the records since its creation.
type frozen struct {
	client.Reader
	namespace string
	records   map[string]*corev1.ConfigMap
	asked     atomic.Int32
}

func (f *frozen) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	cm, ok := obj.(*corev1.ConfigMap)
	if !ok || key.Namespace != f.namespace {
		return f.Reader.Get(ctx, key, obj, opts...)
	}
	f.asked.Add(1)
	if f.records[key.Name] == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
	}
	f.records[key.Name].DeepCopyInto(cm)
	return nil
}

// freeze returns frozen caches of the current records.
func (c *cluster) freeze(t *testing.T) *frozen {
	t.Helper()
	f := &frozen{namespace: c.records, records: map[string]*corev1.ConfigMap{}}
	var list corev1.ConfigMapList
	require.NoError(t, c.List(t.Context(), &list, client.InNamespace(c.records)))
	for i := range list.Items {
		f.records[list.Items[i].Name] = &list.Items[i]
	}
	return f
}

// processBehind runs a processor with a stale cache.
func (c *cluster) processBehind(t *testing.T, f *frozen) {
	t.Helper()
	c.process(t, setup{cache: func(r client.Reader) client.Reader {
		f.Reader = r
		return f
	}})
}

func TestStaleCacheIsFoundOut(t *testing.T) {
	t.Parallel()
	older := record.Record{Labels: set{"rack": "r1"}, Revision: revision.MustParse("9"), Source: "a"}
	newer := record.Record{Labels: set{"rack": "r2"}, Revision: revision.MustParse("12"), Source: "a"}
	for name, tc := range map[string]struct {
		cached, stored *record.Record
		transaction    txn.Transaction
		want           record.Record
	}{
		"a save that would undo a newer one": {&older, &newer, event(txn.Updated, "", "a", "10", set{"rack": "r9"}), newer},
		"a save onto newer labels":           {&older, &newer, event(txn.Updated, "", "a", "20", set{"rack": "r9"}), record.Record{Labels: set{"rack": "r9"}, Revision: revision.MustParse("20"), Source: "a"}},
		"a first record that is not first":   {nil, &newer, event(txn.Updated, "", "a", "10", set{"rack": "r9"}), newer},
		"a record that was removed":          {&older, nil, event(txn.Updated, "", "a", "10", set{"rack": "r9"}), record.Record{Labels: set{"rack": "r9"}, Revision: revision.MustParse("10"), Source: "a"}},
		"nothing to do by the cache":         {&newer, &older, event(txn.Updated, "", "a", "10", set{"rack": "r9"}), record.Record{Labels: set{"rack": "r9"}, Revision: revision.MustParse("10"), Source: "a"}},
		"nothing to do for a stranger":       {&record.Record{Revision: revision.MustParse("9"), Source: "b"}, &older, event(txn.Deleted, "", "a", "10", set{"rack": "r9"}), record.Record{Labels: set{"rack": "r9"}, Revision: revision.MustParse("10"), Source: "a", Ended: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			node := c.name("node")
			write := func(r *record.Record) {
				cm := record.Record{Node: node}.ConfigMap(c.records)
				require.NoError(t, client.IgnoreNotFound(c.Delete(t.Context(), cm)))
				if r != nil {
					saved := *r // rows share it
					saved.Node = node
					c.save(t, saved)
				}
			}
			write(tc.cached)
			behind := c.freeze(t)
			write(tc.stored)
			tc.transaction.Node, tc.want.Node = node, node
			c.put(t, tc.transaction)
			c.processBehind(t, behind)
			c.waitApplied(t, node)
			assert.Equal(t, &tc.want, c.record(t, node))
			assert.Positive(t, behind.asked.Load())
		})
	}
}

func TestAddIsNotDroppedBecauseTheCacheKnowsNoRecord(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	behind := c.freeze(t)
	n, added := c.returned(t, nil, lastLife)
	added.FoundsRecord = false
	c.put(t, added)
	c.processBehind(t, behind)
	c.waitApplied(t, n.Name)
	assert.Equal(t, "r7", c.node(t, n.Name).Labels["rack"])
	assert.Positive(t, behind.asked.Load())
}

func TestAddIsNotDroppedIfOnlyTheCachedNodeHasItsLabels(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := c.addNode(t, c.name("node"), nil)
	owned := lastLife
	owned.Node, owned.Source = n.Name, n.UID
	c.save(t, owned)
	behind := c.freeze(t)
	require.NoError(t, c.Delete(t.Context(), owned.ConfigMap(c.records)))
	owned.Source = lastLife.Source
	c.save(t, owned)
	c.put(t, seen(txn.Added, n))
	c.processBehind(t, behind)
	c.waitApplied(t, n.Name)
	assert.Equal(t, "r7", c.node(t, n.Name).Labels["rack"])
}

// The patch of a Node is conditional on that Node only, so a stale record would go unnoticed.
func TestRestoreIsOfTheNewestLabels(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n, added := c.returned(t, nil, lastLife)
	behind := c.freeze(t)
	newer := record.Record{Node: n.Name, Labels: set{"rack": "r8"}, Revision: revision.MustParse("10"), Source: lastLife.Source}
	require.NoError(t, c.Delete(t.Context(), newer.ConfigMap(c.records)))
	c.save(t, newer)
	c.put(t, added)
	c.processBehind(t, behind)
	c.waitApplied(t, n.Name)
	assert.Equal(t, set{"rack": "r8", labels.Marker: "10"}, c.node(t, n.Name).Labels)
}

// fault is a fault that reports whether it happened.
type fault interface {
	faults.Fault
	Hits() int
}

// history creates and deletes a node, recreates it with other labels, and returns the new Node and
// all transactions.
func (c *cluster) history(t *testing.T, name string, own set) (*corev1.Node, []txn.Transaction) {
	t.Helper()
	first := c.addNode(t, name, set{"rack": "r1"})
	all := []txn.Transaction{seen(txn.Added, first)}
	c.edit(t.Context(), t, first, func(n *corev1.Node) { n.Labels["rack"] = "r2" })
	all = append(all, seen(txn.Updated, first))
	c.edit(t.Context(), t, first, func(n *corev1.Node) { n.Labels["rack"] = "r3" }) // no watcher recorded this edit
	c.deleteNode(t.Context(), t, first)
	all = append(all, seen(txn.Deleted, first))
	second := c.addNode(t, name, own)
	return second, append(all, seen(txn.Added, second))
}

func TestFaultsLeaveOneEffect(t *testing.T) {
	t.Parallel()
	const cm = "ConfigMap"
	for name, inject := range map[string]func(c *cluster) fault{
		"none":                              func(*cluster) fault { return &faults.Log{} },
		"answer to a record's create lost":  func(c *cluster) fault { return lost(faults.Create, cm, c.records, 1) },
		"answers to record's updates lost":  func(c *cluster) fault { return lost(faults.Update, cm, c.records, 5) },
		"answer to the restore lost":        func(*cluster) fault { return lost(faults.Patch, "Node", "", 1) },
		"answers to removals lost":          func(c *cluster) fault { return lost(faults.Delete, cm, c.transactions, 5) },
		"answers to the lock's create lost": func(c *cluster) fault { return lost(faults.Create, "Lease", c.transactions, 3) },
		"answers to the lock's delete lost": func(c *cluster) fault { return lost(faults.Delete, "Lease", c.transactions, 3) },
		"every answer lost for a while":     func(*cluster) fault { return &faults.LostAnswer{Calls: faults.Calls{Times: 5}} },
		"outage":                            func(*cluster) fault { return &faults.Outage{Calls: faults.Calls{Times: 5}} },
		"outage of writes of records": func(c *cluster) fault {
			return &faults.Outage{Calls: faults.Calls{Namespace: c.records, Kind: cm, Times: 3}}
		},
		"outage of the restore": func(*cluster) fault { return &faults.Outage{Calls: faults.Calls{Verb: faults.Patch, Times: 2}} },
		"conflicts of records' updates": func(*cluster) fault {
			return &faults.Conflict{Calls: faults.Calls{Verb: faults.Update, Kind: cm, Times: 35}}
		},
		"conflicts of the restore": func(*cluster) fault { return &faults.Conflict{Calls: faults.Calls{Verb: faults.Patch, Times: 35}} },
		"a conflict of the lock's delete": func(*cluster) fault {
			return &faults.Conflict{Calls: faults.Calls{Verb: faults.Delete, Kind: "Lease", Times: 1}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n, all := c.history(t, c.name("node"), set{"new": "n", zone: "b"})
			c.put(t, all...)
			f := inject(c)
			c.process(t, setup{faults: []faults.Fault{f}})
			c.waitApplied(t, n.Name)
			assert.Positive(t, f.Hits())

			after := c.node(t, n.Name)
			version := all[2].Revision
			assert.Equal(t, set{"rack": "r3", zone: "b", labels.Marker: version.String()}, after.Labels)
			saved := record.Record{Labels: set{"rack": "r3"}, Revision: version, Source: all[2].UID}
			assert.Equal(t, noted(t, saved, after), c.record(t, n.Name), "the node was written once")
		})
	}
}

func lost(verb faults.Verb, kind, namespace string, times int) fault {
	return &faults.LostAnswer{Calls: faults.Calls{Verb: verb, Kind: kind, Namespace: namespace, Times: times}}
}

func TestConflictStormIsBackedOffFrom(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.name("node")
	c.save(t, record.Record{Node: node, Labels: set{"rack": "r1"}, Revision: revision.MustParse("9"), Source: "a"})
	c.put(t, event(txn.Updated, node, "a", "10", set{"rack": "r2"}))
	storm := &faults.Conflict{Calls: faults.Calls{Verb: faults.Update, Kind: "ConfigMap"}}
	other := c.name("other")
	c.put(t, event(txn.Updated, other, "a", "9", set{"rack": "r1"}))
	c.process(t, setup{faults: []faults.Fault{storm}})
	c.waitApplied(t, other)
	require.Eventually(t, func() bool { return storm.Hits() > 30 }, patience, tick)
	left, err := c.queued(t.Context(), node)
	require.NoError(t, err)
	assert.Equal(t, []string{txn.NodeHash(node) + ".10"}, left)
	storm.End()
	c.waitApplied(t, node)
	assert.Equal(t, "10", c.record(t, node).Revision.String())
}

// race runs do between the decision to restore and the patch.
func race(do func(ctx context.Context)) *faults.Race {
	return &faults.Race{Calls: faults.Calls{Verb: faults.Patch, Kind: "Node", Times: 1}, First: do}
}

func TestEditBetweenTheDecisionAndTheRestoreIsNotOverwritten(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n, added := c.returned(t, nil, lastLife)
	c.put(t, added)
	f := race(func(ctx context.Context) { c.edit(ctx, t, n, func(n *corev1.Node) { n.Labels = set{zone: "b"} }) })
	c.process(t, setup{faults: []faults.Fault{f}})
	c.waitApplied(t, n.Name)
	assert.Equal(t, 1, f.Hits())
	assert.Equal(t, set{"rack": "r7", "example.com/team": "blue", zone: "b", labels.Marker: "9"}, c.node(t, n.Name).Labels)
}

// anotherRestores makes another processor restore the rack of a node from its record, and a user
// edit the rack, before this processor restores it.
func (c *cluster) anotherRestores(t *testing.T, n *corev1.Node, saved record.Record, isNoted bool) *faults.Race {
	t.Helper()
	return race(func(ctx context.Context) {
		c.edit(ctx, t, n, func(n *corev1.Node) {
			n.Labels = set{"rack": saved.Labels["rack"], labels.Marker: saved.Revision.String()}
		})
		if isNoted {
			saved.Node, saved.Restored = n.Name, record.Restoration{UID: n.UID, Revision: revision.Of(n.ResourceVersion)}
			assert.NoError(t, c.Update(ctx, saved.ConfigMap(c.records)))
		}
		c.edit(ctx, t, n, func(n *corev1.Node) { n.Labels["rack"] = "edited" })
	})
}

func TestEditAfterTheRestoreOfAnotherProcessorIsNotOverwritten(t *testing.T) {
	t.Parallel()
	for name, isNoted := range map[string]bool{"noted in the record": true, "not noted yet": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n, added := c.returned(t, set{"new": "n"}, lastLife)
			c.put(t, added)
			f := c.anotherRestores(t, n, lastLife, isNoted)
			c.process(t, setup{faults: []faults.Fault{f}})
			c.waitApplied(t, n.Name)
			assert.Equal(t, 1, f.Hits())
			assert.Equal(t, set{"rack": "edited", labels.Marker: "9"}, c.node(t, n.Name).Labels)
			assert.True(t, preserve.Owned(*c.record(t, n.Name), n.UID, ""))
		})
	}
}

func TestNodeReplacedBetweenTheDecisionAndTheRestoreIsNotPatched(t *testing.T) {
	t.Parallel()
	for name, comesBack := range map[string]bool{"gone": false, "another incarnation": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n, added := c.returned(t, set{"new": "n"}, lastLife)
			c.put(t, added)
			next := &corev1.Node{ObjectMeta: n.ObjectMeta}
			f := race(func(ctx context.Context) {
				assert.NoError(t, c.Delete(ctx, n))
				if comesBack {
					next.UID, next.ResourceVersion = "", ""
					assert.NoError(t, c.Create(ctx, next))
				}
			})
			c.process(t, setup{faults: []faults.Fault{f}})
			c.waitApplied(t, n.Name)
			assert.Equal(t, 1, f.Hits())
			assert.False(t, preserve.Owned(*c.record(t, n.Name), n.UID, ""), "that incarnation was never restored")
			if comesBack {
				assert.Equal(t, next.ResourceVersion, c.node(t, n.Name).ResourceVersion, "its own add restores it")
				c.put(t, seen(txn.Added, next))
				c.waitApplied(t, n.Name)
				assert.Equal(t, "r7", c.node(t, n.Name).Labels["rack"])
			}
		})
	}
}

func TestRecordWrittenBetweenTheRestoreAndItsNoteIsNotOverwritten(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n, added := c.returned(t, nil, record.Record{Labels: set{"rack": "r7"}, Revision: revision.MustParse("9"), Source: "the last life"})
	c.put(t, added)
	newer := record.Record{Node: n.Name, Labels: set{"rack": "r8"}, Revision: revision.MustParse("10"), Source: "another life"}
	f := &faults.Race{Calls: faults.Calls{Verb: faults.Update, Kind: "ConfigMap", Times: 1}, First: func(ctx context.Context) {
		assert.NoError(t, c.Update(ctx, newer.ConfigMap(c.records)))
	}}
	c.process(t, setup{faults: []faults.Fault{f}})
	c.waitApplied(t, n.Name)
	assert.Equal(t, 1, f.Hits())
	saved := c.record(t, n.Name)
	assert.Equal(t, newer.Labels, saved.Labels)
	assert.Equal(t, n.UID, saved.Restored.UID)
	assert.Equal(t, set{"rack": "r8", labels.Marker: "10"}, c.node(t, n.Name).Labels)
}

func TestTransactionThatTookTheNameSinceIsNotRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := c.name("node")
	first := event(txn.Added, node, "a", "9", set{"rack": "r1"})
	second := event(txn.Deleted, node, "a", "9", set{"rack": "r1"}) // a missed delete is named after the last event
	c.put(t, first)
	f := &faults.Race{Calls: faults.Calls{Verb: faults.Delete, Kind: "ConfigMap", Namespace: c.transactions, Times: 1}, First: func(ctx context.Context) {
		assert.NoError(t, c.Delete(ctx, first.ConfigMap(c.transactions)))
		assert.NoError(t, c.Create(ctx, second.ConfigMap(c.transactions)))
	}}
	removed := &faults.Log{Calls: faults.Calls{Verb: faults.Delete, Kind: "ConfigMap", Namespace: c.transactions}}
	c.process(t, setup{faults: []faults.Fault{removed, f}})
	c.waitApplied(t, node)
	entries := removed.Entries()
	require.GreaterOrEqual(t, len(entries), 2, "the second was applied for itself")
	assert.True(t, apierrors.IsConflict(entries[0].Err), "got %v", entries[0].Err)
	require.NoError(t, entries[len(entries)-1].Err)
}
