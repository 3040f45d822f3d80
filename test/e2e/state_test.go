package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/programs"
)

// queued returns the transactions of all nodes of the test.
func (e *env) queued(t require.TestingT) []corev1.ConfigMap {
	var queued []corev1.ConfigMap
	for _, cm := range e.configMaps(t, e.transactions) {
		if transaction, err := txn.Parse(&cm); err == nil && e.nodes[transaction.Node] {
			queued = append(queued, cm)
		}
	}
	return queued
}

// queue returns the transactions of one node.
func (e *env) queue(t require.TestingT, name string) []corev1.ConfigMap {
	return slices.DeleteFunc(e.queued(t), func(cm corev1.ConfigMap) bool {
		return !strings.HasPrefix(cm.Name, txn.NodeHash(name)+".")
	})
}

func (e *env) configMaps(t require.TestingT, namespace string) []corev1.ConfigMap {
	var list corev1.ConfigMapList
	require.NoError(t, e.client.List(e.t.Context(), &list, client.InNamespace(namespace)))
	return list.Items
}

// locks returns the locks of the test's nodes.
func (e *env) locks(t require.TestingT) []coordinationv1.Lease {
	var list coordinationv1.LeaseList
	require.NoError(t, e.client.List(e.t.Context(), &list, client.InNamespace(e.transactions)))
	var locks []coordinationv1.Lease
	for _, lease := range list.Items {
		if e.nodes[lease.Name] {
			locks = append(locks, lease)
		}
	}
	return locks
}

// record reads the saved labels of a node; nil if there are none.
func (e *env) record(t require.TestingT, name string) *record.Record {
	cm := &corev1.ConfigMap{}
	err := e.client.Get(e.t.Context(), types.NamespacedName{Namespace: e.metadata, Name: name}, cm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	r, err := record.Parse(cm)
	require.NoError(t, err)
	if r.Floor {
		return nil
	}
	return r
}

// recordedNodes returns the names of the test's nodes with saved labels.
func (e *env) recordedNodes(t require.TestingT) []string {
	var names []string
	for _, cm := range e.configMaps(t, e.metadata) {
		if !e.nodes[cm.Name] {
			continue
		}
		r, err := record.Parse(&cm)
		require.NoError(t, err)
		if !r.Floor {
			names = append(names, cm.Name)
		}
	}
	return names
}

// saved waits until a node's record has these labels, and returns the record.
func (e *env) saved(name string, want labelSet) *record.Record {
	e.t.Helper()
	var found *record.Record
	e.eventually(func(c *assert.CollectT) {
		found = e.record(c, name)
		require.NotNil(c, found, "record of node %s", name)
		assert.Equal(c, want, found.Labels, "labels in the record of node %s", name)
	}, "the labels of node %s are saved", name)
	return found
}

// reached waits until the record of a node shows this version of the Node, or a later one of the
// same incarnation, whether saved or noted.
func (e *env) reached(n *corev1.Node) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) {
		r := e.record(c, n.Name)
		require.NotNil(c, r, "record of node %s", n.Name)
		shown := map[types.UID]revision.Revision{r.Source: r.Revision}
		if r.Restored.UID != "" {
			shown[r.Restored.UID] = r.Restored.Revision
		}
		require.Contains(c, shown, n.UID, "incarnations in the record of node %s", n.Name)
		assert.GreaterOrEqual(c, shown[n.UID].Compare(revision.MustParse(n.ResourceVersion)), 0,
			"the record of node %s shows version %s, not %s", n.Name, shown[n.UID], n.ResourceVersion)
	}, "the record of node %s shows version %s", n.Name, n.ResourceVersion)
}

// noted waits until the record shows that an incarnation has its labels.
func (e *env) noted(n *corev1.Node) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) {
		r := e.record(c, n.Name)
		require.NotNil(c, r, "record of node %s", n.Name)
		assert.Contains(c, []types.UID{r.Source, r.Restored.UID}, n.UID)
	}, "the return of node %s is noted", n.Name)
}

// applied waits until the record shows this version of a Node and the node has no pending
// transactions.
func (e *env) applied(n *corev1.Node) {
	e.t.Helper()
	e.reached(n)
	e.drained(n.Name)
}

// ended waits until a watcher has stored the end of an incarnation, the record shows it, and the
// node has no pending transactions. The record alone proves too little: that of a protected Node
// shows its end before the Node is gone.
func (e *env) ended(n *corev1.Node) {
	e.t.Helper()
	e.recorded(n.UID, txn.Deleted)
	e.noted(n)
	e.eventually(func(c *assert.CollectT) { assert.True(c, e.record(c, n.Name).Ended) }, "the end of node %s is saved", n.Name)
	e.drained(n.Name)
}

// drained waits until a node has no pending transactions. Events that no watcher has stored yet are
// not pending, so a test first waits for the effect of its last step, or until that step is
// recorded.
func (e *env) drained(name string) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) { assert.Empty(c, e.queue(c, name)) }, "nothing is pending of node %s", name)
}

// recorded waits until a watcher has stored a transaction of an incarnation.
func (e *env) recorded(uid types.UID, typ txn.Type) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) {
		assert.Contains(c, e.transactionTypes(uid), string(typ), "transactions of incarnation %s", uid)
	}, "a watcher has stored that")
}

// transactionTypes returns the types of the transactions that the watchers have stored for an
// incarnation.
func (e *env) transactionTypes(uid types.UID) []string {
	var stored []string
	for _, p := range e.programs {
		for _, line := range loggedMessages(p, "Recorded transaction") {
			if line["uid"] == string(uid) {
				stored = append(stored, line["type"].(string))
			}
		}
	}
	return stored
}

// loggedMessages returns the lines of a program's log with this message.
func loggedMessages(p *programs.Program, message string) []map[string]any {
	return slices.DeleteFunc(logged(p, message), func(line map[string]any) bool { return line["msg"] != message })
}

// complaints returns the error lines of a program's log that contain the text, as they print.
func complaints(p *programs.Program, text string) []string {
	var found []string
	for _, line := range logged(p, `"level":"ERROR"`) {
		if printed := fmt.Sprint(line); strings.Contains(printed, text) {
			found = append(found, printed)
		}
	}
	return found
}

// logged returns the lines of a program's log that contain the text literally, in JSON.
func logged(p *programs.Program, text string) []map[string]any {
	var found []map[string]any
	for line := range strings.SplitSeq(p.Output(), "\n") {
		fields := map[string]any{}
		if strings.Contains(line, text) && json.Unmarshal([]byte(line), &fields) == nil {
			found = append(found, fields)
		}
	}
	return found
}

// warned waits for a Warning event on an object and returns its note.
func (e *env) warned(uid types.UID, reason string) string {
	e.t.Helper()
	note := ""
	e.eventually(func(c *assert.CollectT) {
		note = e.warning(c, uid, reason)
		assert.NotEmpty(c, note)
	}, "there is a Warning event %s on the object with uid %s", reason, uid)
	return note
}

// warning returns the note of a Warning event on an object, "" if there is none.
func (e *env) warning(t require.TestingT, uid types.UID, reason string) string {
	var list eventsv1.EventList
	require.NoError(t, e.client.List(e.t.Context(), &list))
	for i := range list.Items {
		event := &list.Items[i]
		if event.Regarding.UID == uid && event.Reason == reason && event.Type == corev1.EventTypeWarning {
			return event.Note
		}
	}
	return ""
}

// metric reads a metric without labels from the endpoint of a program.
func (e *env) metric(t require.TestingT, address, name string) float64 {
	req, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { assert.NoError(t, resp.Body.Close()) }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			value, err := strconv.ParseFloat(text, 64)
			require.NoError(t, err)
			return value
		}
	}
	require.NoError(t, lines.Err())
	require.Fail(t, "there is no metric "+name)
	return 0
}
