package plugin_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/test/kubectl"
)

// TestPageNamesTheRightThatItLacks checks that without the rights to list and watch Leases, the
// page reports that it has no information about the replicas, instead of reporting them as unready.
// It shows everything else.
func TestPageNamesTheRightThatItLacks(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("watcher")
	e.start("processor")
	e.create("node-1", of("node-1", "r1"))
	e.saved("node-1", of("node-1", "r1"))
	admin := e.Kubeconfig
	for user, of := range map[string]struct {
		verbs []string
		lacks string
	}{"sees-no-leases": {lacks: "list"}, "lists-leases": {verbs: []string{"list"}, lacks: "watch"}} {
		e.grant(user, e.members, rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: of.verbs})
		for _, namespace := range []string{e.transactions, e.metadata} {
			e.grant(user, namespace, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}})
		}
		e.grant(user, "", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"}})
		e.Kubeconfig = admin
		e.become(user)
		p := e.openPage()
		shown := p.until(func(kind, key string, value map[string]any) bool {
			return kind == "meta" && key == "health" && len(value["unwell"].([]any)) > 0
		})
		health := shown["meta/health"]["unwell"].([]any)
		require.Len(t, health, 1, "no service is said to lack a replica")
		for _, text := range []any{health[0], shown["problem/replicas"]["text"]} {
			assert.Contains(t, text, `cannot `+of.lacks+` resource "leases" in API group "coordination.k8s.io" in the namespace "`+e.members+`"`)
		}
		assert.Contains(t, health[0], "it is unknown which replicas are ready: ")
		assert.Contains(t, health[0], "nodekeeper-viewer", "the needed right is named")
		assert.NotContains(t, shown, "problem/nodes")
		assert.Equal(t, "live", shown["node/node-1"]["state"])
		p.close()
	}
}

// grant gives a user rights in a namespace, or in the whole cluster, and waits until the API server
// knows them.
func (e *env) grant(user, namespace string, rule rbacv1.PolicyRule) {
	e.t.Helper()
	if len(rule.Verbs) == 0 {
		return
	}
	e.bind(user, namespace, rule)
	for _, verb := range rule.Verbs {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: rule.APIGroups[0], Resource: rule.Resources[0]},
		}}
		e.eventually(func(c *assert.CollectT) {
			require.NoError(c, e.client.Create(e.t.Context(), review))
			assert.True(c, review.Status.Allowed)
		}, "%s may %s %s", user, verb, rule.Resources[0])
	}
}

// bind gives a user rights.
func (e *env) bind(user, namespace string, rule rbacv1.PolicyRule) {
	e.t.Helper()
	meta := metav1.ObjectMeta{GenerateName: "test-", Namespace: namespace}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	if namespace == "" {
		role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}
		require.NoError(e.t, e.client.Create(e.t.Context(), role))
		require.NoError(e.t, e.client.Create(e.t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		}))
		return
	}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}
	require.NoError(e.t, e.client.Create(e.t.Context(), role))
	require.NoError(e.t, e.client.Create(e.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	}))
}

// readPage opens the page, and checks that it shows the nodes, the records, the replicas, and all
// details of one node.
func (e *env) readPage() {
	e.t.Helper()
	p := e.openPage()
	detail, err := io.ReadAll(p.get("api/node?name=node-1"))
	require.NoError(e.t, err)
	assert.Contains(e.t, string(detail), "changed after the labels were saved")
	assert.NotContains(e.t, string(detail), "rights")
	isProcessor, isNode := false, false
	shown := p.until(func(kind, key string, value map[string]any) bool {
		isProcessor = isProcessor || kind == "replica" && value["service"] == "processor"
		isNode = isNode || kind == "node" && key == "node-1"
		return isProcessor && isNode
	})
	assert.NotContains(e.t, shown, "problem/nodes")
	assert.NotContains(e.t, shown, "problem/replicas")
	p.close()
}

// page is the page that kubectl nodekeeper ui serves.
type page struct {
	t *testing.T
	// get returns the response body of a request.
	get func(path string) io.ReadCloser
	// close interrupts the command, which then exits without an error.
	close func()
}

// openPage runs kubectl nodekeeper ui until it watches, and reads the link.
func (e *env) openPage() *page {
	e.t.Helper()
	out := &lineBuffer{}
	cmd := e.Command(e.t.Context(), "kubectl", append([]string{"nodekeeper", "ui"}, e.Flags...)...)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(e.t, cmd.Start())
	e.eventually(func(c *assert.CollectT) { assert.Contains(c, out.String(), "Watching") }, "%s", out)
	jar, err := cookiejar.New(nil)
	require.NoError(e.t, err)
	browser := &http.Client{Jar: jar}
	link := kubectl.LinkPattern.FindString(out.String())
	origin, query, _ := strings.Cut(link, "?")
	p := &page{t: e.t, get: func(path string) io.ReadCloser {
		e.t.Helper()
		r, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, origin+path, nil)
		require.NoError(e.t, err)
		answer, err := browser.Do(r)
		require.NoError(e.t, err)
		e.t.Cleanup(func() { assert.NoError(e.t, answer.Body.Close()) })
		require.Equal(e.t, http.StatusOK, answer.StatusCode)
		return answer.Body
	}, close: func() {
		e.t.Helper()
		require.NoError(e.t, cmd.Process.Signal(os.Interrupt))
		require.NoError(e.t, cmd.Wait(), out.String())
	}}
	p.get("?" + query)
	return p
}

// until reads the page's event stream until ends returns true for an entry. It returns the last
// state of each entry, with keys such as node/node-1.
func (p *page) until(ends func(kind, key string, value map[string]any) bool) map[string]map[string]any {
	p.t.Helper()
	shown := map[string]map[string]any{}
	for lines := bufio.NewReader(p.get("api/events")); ; {
		line, err := lines.ReadString('\n')
		require.NoError(p.t, err)
		data, ok := strings.CutPrefix(line, "data: [")
		if !ok {
			continue
		}
		var changes []struct {
			Kind, Key string
			Value     map[string]any
		}
		require.NoError(p.t, json.Unmarshal([]byte("["+data), &changes), line)
		isOver := false
		for _, ch := range changes {
			shown[ch.Kind+"/"+ch.Key] = ch.Value
			isOver = isOver || ends(ch.Kind, ch.Key, ch.Value)
		}
		if isOver {
			return shown
		}
	}
}
