package plugin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/internal/service/settings"
)

// replica creates the Lease of a replica that lives for ten minutes and publishes this text; ""
// means that it publishes nothing.
func (e *env) replica(name, service, text string) {
	e.t.Helper()
	now := metav1.NewMicroTime(time.Now())
	published := set{settings.Annotation: text, settings.VersionAnnotation: "v-" + name}
	if text == "" {
		published = nil
	}
	require.NoError(e.t, e.client.Create(e.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.members, Name: name, Labels: set{ring.Label: service}, Annotations: published},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(600)), AcquireTime: &now, RenewTime: &now},
	}))
}

// owed creates node-1, which has returned without its saved labels, with an additional label and
// another rack.
func (e *env) owed() {
	e.t.Helper()
	const name = "node-1"
	e.create(name, set{"rack": "r1", "team": "blue"})
	e.must("save", name)
	e.delete(name)
	e.create(name, set{"rack": "r9", "own": "x", "state.example.com/ready": "yes"})
}

func TestForecastsFollowTheSettingsOfTheServers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor", "--restore-mode=merge", "--live-labels=rack", "--ignore-labels=state.example.com/*")
	e.owed()
	r := e.run("restore", "node-1", "--dry-run=client")
	assert.Empty(t, r.stderr)
	assert.Contains(t, r.stdout, "+team=blue\n")
	assert.NotContains(t, r.stdout, "rack", "it is live")
	assert.NotContains(t, r.stdout, "own", "it stays")
	assert.NotContains(t, r.stdout, "state.example.com", "it is ignored")
	r = e.run("restore", "node-1", "--dry-run=client", "--restore-mode=replace", "--live-labels=")
	assert.Empty(t, r.stderr)
	assert.Contains(t, r.stdout, "-own=x\n-rack=r9\n+rack=r1\n+team=blue\n", "flags win")
	assert.NotContains(t, r.stdout, "state.example.com")
	r = e.run("diff", "node-1")
	assert.Empty(t, r.stderr)
	assert.NotContains(t, r.stdout, "state.example.com")
	assert.Contains(t, e.run("diff", "node-1", "--ignore-labels=").stdout, "+state.example.com/ready=yes")

	e.must("restore", "node-1")
	own, _ := e.node(t, "node-1")
	assert.Equal(t, set{"rack": "r9", "team": "blue", "own": "x", "state.example.com/ready": "yes"}, own, "as foretold")
	e.delete("node-1")
	assert.Contains(t, e.fails("set", "node-1", "state.example.com/ready=no", "--ignore-missing-end"), `label "state.example.com/ready" is ignored`)
}

func TestForecastReportsUnknownSettings(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := e.start("processor", "--restore-mode=merge", "--live-labels=rack")
	e.owed()
	e.stop(p)
	r := e.run("restore", "node-1", "--dry-run=client")
	assert.Equal(t, "Note: no processor is alive, so this uses the settings of the last one, "+p.Identity+".\n", r.stderr)
	assert.Contains(t, r.stdout, "+team=blue\n")
	assert.NotContains(t, r.stdout, "own")

	require.NoError(t, e.client.DeleteAllOf(t.Context(), &coordinationv1.Lease{}, client.InNamespace(e.members)))
	r = e.run("restore", "node-1", "--dry-run=client")
	assert.Equal(t, "Note: this uses the default settings, as no processor in namespace "+e.members+" publishes its settings; "+
		"if the servers run with others, give --machine-managers, --ignore-labels, --same-machine-labels, --preserve-annotations, --preserve-taints, --restore-mode, --live-labels, --restricted-labels.\n", r.stderr)
	assert.Contains(t, r.stdout, "-own=x\n")
	r = e.run("restore", "node-1", "--dry-run=client", "--machine-managers=", "--ignore-labels=", "--same-machine-labels=", "--preserve-annotations=", "--preserve-taints=", "--restore-mode=merge", "--live-labels=", "--restricted-labels=keep")
	assert.Empty(t, r.stderr, "nothing is left to say")

	e.replica("bad", "processor", `{"restore-mode":"\u001b[2J"}`)
	r = e.run("restore", "node-1", "--dry-run=client")
	assert.Contains(t, r.stderr, "Note: the settings of bad cannot be read: restore-mode has characters that cannot be shown.\nNote: this uses the default settings")
	assert.Zero(t, r.code)
	assert.Contains(t, e.run("status").stdout, "  Settings:     of bad cannot be read: ")

	e.replica("good", "processor", `{"restore-mode":"merge"}`)
	r = e.run("restore", "node-1", "--dry-run=client")
	assert.Equal(t, 1, strings.Count(r.stderr, "Note: "), "%s", r.stderr)
	assert.Contains(t, r.stdout, "+team=blue\n")
	assert.NotContains(t, r.stdout, "own")
}

func TestForecastReportsThatTheServersDiffer(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	p := e.start("processor")
	e.owed()
	e.stop(p)
	require.NoError(t, e.client.DeleteAllOf(t.Context(), &coordinationv1.Lease{}, client.InNamespace(e.members)))
	e.replica("one", "processor", `{"restore-mode":"merge","save-delay":"5s"}`)
	e.replica("two", "processor", `{"restore-mode":"replace","save-delay":"9s","x":{}}`)
	r := e.run("restore", "node-1", "--dry-run=client")
	owner := strings.TrimSuffix(strings.TrimPrefix(r.stderr, "Note: the processors differ in restore-mode, so this uses the settings of "), ".\n")
	require.Contains(t, []string{"one", "two"}, owner, r.stderr)
	assert.Equal(t, owner == "two", strings.Contains(r.stdout, "-own=x\n"), "as its owner would do it")
	r = e.run("status")
	assert.Contains(t, r.stdout, "  Version:      v-one (1), v-two (1)\n")
	assert.Contains(t, r.stdout, "  Differ in:    restore-mode: merge (one); replace (two)\n  Differ in:    save-delay: 5s (one); 9s (two)\n")
	assert.Regexp(t, `  two: alive, last heard \d+s ago, v-two\n    restore-mode=replace\n    save-delay=9s\n`, e.run("status", "-o", "wide").stdout)
	assert.Contains(t, e.run("status", "-o", "json").stdout, `"restore-mode": "merge"`)

	require.NoError(t, e.client.Delete(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.members, Name: "two"}}))
	e.replica("watching", "watcher", `{"ignore-labels":"a"}`)
	require.NoError(t, e.client.Delete(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.members, Name: "one"}}))
	e.replica("three", "processor", `{"ignore-labels":"b"}`)
	assert.Equal(t, "Note: watchers and processors differ in ignore-labels, and should not.\n", e.run("diff", "node-1").stderr)
}

// TestForecastWithoutTheRightToReadTheServers has a user who may read records and transactions, but
// not Leases.
func TestForecastWithoutTheRightToReadTheServers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.start("processor")
	e.owed()
	reader := e.metadata + "-reader"
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes", "configmaps"}, Verbs: []string{"get", "list"}}}
	require.NoError(t, e.client.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: reader}, Rules: rules}))
	require.NoError(t, e.client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: reader}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: reader},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: reader}},
	}))
	e.become(reader)
	var r result
	e.eventually(func(c *assert.CollectT) {
		r = e.run("restore", "node-1", "--dry-run=client")
		assert.Zero(c, r.code, r.stderr)
	}, "the API server knows the rights")
	assert.Regexp(t, `^Note: this uses the default settings, as you may not see those of the servers \(.*leases.*`+e.members+`.*\); if .*\n$`, r.stderr)
	assert.Contains(t, r.stdout, "-own=x")
	assert.Contains(t, e.fails("version"), "nodekeeper-viewer")
}

func TestVersionsOfThePluginAndOfTheServers(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	built := strings.Fields(e.must("--version"))[1]
	assert.Equal(t, "Plugin:         "+built+"\nWatchers:       -\nProcessors:     -\n", e.must("version"))
	e.start("watcher")
	e.start("processor")
	assert.Equal(t, "Plugin:         "+built+"\nWatchers:       "+built+"\nProcessors:     "+built+"\n", e.must("version"))
	e.replica("other", "processor", `{}`)
	printed := e.must("version")
	assert.Contains(t, printed, built+" (1)")
	assert.Contains(t, printed, "v-other (1)")
	assert.Equal(t, built, e.must("version", "-o", "jsonpath={.client.version}"))
	assert.Contains(t, e.must("version", "-o", "json"), `"version": "v-other"`)
	r := e.run("version", "--server=https://127.0.0.1:1")
	assert.Equal(t, 1, r.code)
	assert.Equal(t, "Plugin:         "+built+"\n", r.stdout)
}
