package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/programs"
)

// TestRestoredEtcd takes the cluster back in time, as restoring an older backup of etcd does. The
// services must not write anything that they remember from the lost future, and must keep later
// events as usual.
func TestRestoredEtcd(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		isBumped   bool // restored as by etcdutl snapshot restore --bump-revision --mark-compacted
		hasPending bool // the watcher has seen an event and not stored it
		isRestart  bool // the services are restarted afterwards, as is required of all components
	}{
		"services run throughout":                            {},
		"services run throughout, and revisions do not fall": {isBumped: true},
		"services are restarted":                             {hasPending: true, isRestart: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			if e.plane == nil {
				t.Skip("it restores the etcd, which is not ours")
			}
			e.live()
			before := e.state()
			backup := e.backUp()
			w, p := e.watcher(), e.processor()
			e.liveALostFuture(p)
			if tc.hasPending {
				e.leavePending(w)
			}

			e.restore(backup, tc.isBumped)

			if tc.isRestart {
				require.NoError(t, w.Stop(stopTimeout))
				require.NoError(t, p.Stop(stopTimeout))
			} else {
				e.noticesTheRewind(w)
				if !tc.isBumped { // otherwise it relists and continues
					e.noticesTheRewind(p)
				}
			}
			w = e.watcher()
			if len(e.running("processor")) == 0 {
				e.processor()
			}
			e.eventually(func(c *assert.CollectT) {
				assert.Len(c, loggedMessages(w, "Compared nodes with their records"), 1)
			}, "the watcher knows what there is")
			assert.Equal(t, before, e.state(), "nothing is written of the lost future")
			e.goesOn()
		})
	}
}

// The nodes of the test, by what happens to them in the lost future.
const (
	editedSince   = "edited"
	deletedSince  = "deleted"
	replacedSince = "replaced"
	// pending may have an event that the watcher cannot store before the API server goes down.
	pending = "pending"
	// queued has a transaction that the processor cannot apply before that.
	queued = "queued"
	// restored returned before, and got its labels.
	restored = "restored"
	// away was deleted before, and returns.
	away = "away"
	// createdSince did not exist before.
	createdSince = "created"
)

var original = labelSet{"rack": "r7", "team": "blue"}

// live performs the events before the backup: every node has its labels saved, and no work is left.
// No service runs at the end.
func (e *env) live() {
	e.t.Helper()
	e.watcher()
	p := e.processor()
	for _, name := range []string{editedSince, deletedSince, replacedSince, pending, queued, restored, away} {
		e.create(e.name(name), original)
		e.saved(e.name(name), original)
	}
	for _, name := range []string{restored, away} {
		e.delete(e.name(name))
	}
	e.create(e.name(restored), nil)
	e.restored(e.name(restored), original)
	e.eventually(func(c *assert.CollectT) {
		assert.Equal(c, e.node(c, e.name(restored)).UID, e.record(c, e.name(restored)).Restored.UID)
	}, "the restore is noted")
	e.settle()
	e.stop(p)
}

// state returns the resourceVersions of each Node of the test, and of its record and transactions.
// Locks protect no data: a processor whose request is not answered before it ends leaves one behind.
func (e *env) state() map[string]string {
	e.t.Helper()
	versions := map[string]string{}
	for name := range e.nodes {
		node := &corev1.Node{}
		require.NoError(e.t, client.IgnoreNotFound(e.client.Get(e.t.Context(), types.NamespacedName{Name: name}, node)))
		if node.UID != "" {
			versions["node "+name] = string(node.UID) + " " + node.ResourceVersion
		}
	}
	for _, cm := range slices.Concat(e.configMaps(e.t, e.metadata), e.configMaps(e.t, e.transactions)) {
		versions[cm.Namespace+" "+cm.Name] = cm.ResourceVersion
	}
	return versions
}

// liveALostFuture performs the events after the backup, which the restore undoes.
func (e *env) liveALostFuture(p *programs.Program) {
	e.t.Helper()
	e.delete(e.name(deletedSince))
	e.delete(e.name(replacedSince))
	e.delete(e.name(restored))
	for _, name := range []string{replacedSince, away, createdSince} {
		e.create(e.name(name), labelSet{"lost": "created"})
	}
	e.restored(e.name(away), original)
	e.restored(e.name(replacedSince), original)
	// This exceeds the writes of an API server at startup.
	for i := range 200 {
		e.set(e.name(editedSince), "lost", strconv.Itoa(i))
	}
	for _, name := range []string{replacedSince, away} {
		e.set(e.name(name), "lost", "edited")
		e.saved(e.name(name), labelSet{"rack": "r7", "team": "blue", "lost": "edited"})
	}
	e.saved(e.name(editedSince), labelSet{"rack": "r7", "team": "blue", "lost": "199"})
	e.saved(e.name(createdSince), labelSet{"lost": "created"})

	e.editRecord(e.name(queued), map[string]string{"labels_restored": "nonsense"})
	e.set(e.name(queued), "lost", "queued")
	e.eventually(func(c *assert.CollectT) {
		assert.NotEmpty(c, complaints(p, e.name(queued)))
	}, "the processor does not get it applied")
}

// leavePending lets a watcher see an event that it cannot store.
func (e *env) leavePending(w *programs.Program) {
	e.t.Helper()
	e.refuseTransactions(e.name(pending))
	e.set(e.name(pending), "lost", "pending")
	e.eventually(func(c *assert.CollectT) {
		assert.NotEmpty(c, complaints(w, e.name(pending)))
	}, "the watcher does not get it stored")
}

// goesOn checks that events after the restore are kept as usual.
func (e *env) goesOn() {
	e.t.Helper()
	want := labelSet{"rack": "r7", "team": "blue", "later": "edit"}
	for _, name := range []string{editedSince, deletedSince, replacedSince, pending, queued, restored} {
		e.set(e.name(name), "later", "edit")
		e.saved(e.name(name), want)
		e.delete(e.name(name))
		e.create(e.name(name), nil)
	}
	e.create(e.name(away), nil)
	e.create(e.name(createdSince), labelSet{"new": "n"})
	for _, name := range []string{editedSince, deletedSince, replacedSince, pending, queued, restored} {
		e.restored(e.name(name), want)
	}
	e.restored(e.name(away), original)
	e.saved(e.name(createdSince), labelSet{"new": "n"})
	e.settle()
	for _, name := range []string{editedSince, deletedSince, replacedSince, pending, queued, restored} {
		e.hasRestored(e.t, e.name(name), want)
	}
	e.hasRestored(e.t, e.name(away), original)
}

// backUp returns a copy of all data in etcd.
func (e *env) backUp() (dir string) {
	e.t.Helper()
	dir = filepath.Join(e.t.TempDir(), "backup")
	require.NoError(e.t, e.plane.BackUp(dir))
	return dir
}

// restore replaces the data in etcd by a copy. If isBumped, its revision is higher than any
// previous one.
func (e *env) restore(dir string, isBumped bool) {
	e.t.Helper()
	last := e.revision()
	require.NoError(e.t, e.plane.Restore(dir, func() error {
		if isBumped {
			e.bump(last + 100)
		}
		return nil
	}))
}

// bump sets etcd's current revision and compacts all earlier ones.
func (e *env) bump(to int64) {
	e.t.Helper()
	e.raise(to)
	require.NoError(e.t, e.etcd("compaction", map[string]any{"revision": e.revision()}, nil))
}

// raise raises etcd's current revision.
func (e *env) raise(to int64) {
	e.t.Helper()
	for e.revision() < to {
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { assert.NoError(e.t, e.etcd("put", map[string]any{"key": []byte("bump")}, nil)) })
		}
		wg.Wait()
	}
}

// revision returns etcd's current revision.
func (e *env) revision() int64 {
	e.t.Helper()
	var answer struct {
		Header struct {
			Revision int64 `json:",string"`
		}
	}
	require.NoError(e.t, e.etcd("range", map[string]any{"key": []byte("bump")}, &answer))
	return answer.Header.Revision
}

// etcd calls the key-value service of etcd through its JSON gateway.
func (e *env) etcd(method string, request map[string]any, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	post, err := http.NewRequestWithContext(e.t.Context(), http.MethodPost, e.plane.EtcdURL()+"/v3/kv/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	post.Close = true // etcd does not stop while connections are open
	response, err := http.DefaultClient.Do(post)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answered %s to %s: %s", response.Status, method, content)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(content, answer)
}

// noticesTheRewind waits until a program has exited because of the rewind.
func (e *env) noticesTheRewind(p *programs.Program) {
	e.t.Helper()
	select {
	case <-p.Done():
		assert.Equal(e.t, 1, p.ExitCode())
		assert.Contains(e.t, p.Output(), "the cluster was rewound")
	case <-time.After(patience):
		require.Fail(e.t, p.Identity+" does not notice that the cluster was rewound")
	}
}

// refuseTransactions makes the API server reject the transactions of a node.
func (e *env) refuseTransactions(node string) {
	e.t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: e.prefix + "no-transactions"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
						Rule: admissionregistrationv1.Rule{
							APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
						},
					},
				}},
			},
			Validations: []admissionregistrationv1.Validation{{
				Expression: `!object.metadata.name.startsWith("` + txn.NodeHash(node) + `")`,
			}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	require.NoError(e.t, e.client.Create(e.t.Context(), policy))
	require.NoError(e.t, e.client.Create(e.t.Context(), binding))
	probe := txn.Transaction{Type: txn.Updated, Node: node, UID: types.UID("probe"), Revision: revision.MustParse("1")}.ConfigMap(e.transactions)
	e.eventually(func(c *assert.CollectT) {
		assert.Error(c, e.client.Create(e.t.Context(), probe.DeepCopy(), client.DryRunAll))
	}, "the policy is in force")
}
