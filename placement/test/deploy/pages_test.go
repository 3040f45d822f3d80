package deploy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/test/queues"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/pages"
	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/repository"
)

// typedPages are typed in this order on one API server: the first one installs everything, and the
// last one removes it. TestPlacementTutorial in test/cluster types the tutorial.
var typedPages = []string{"placement/docs/install.md", "placement/README.md", "placement/docs/alerts.md", "placement/docs/how-to.md"}

const (
	noOperator    = "needs the Prometheus operator: placement/test/controller renders it"
	noControllers = "no kubelet and no controller of workloads runs here: test/cluster does it"
)

// typing is how the commands of the pages are typed, those in the text, too. Shell functions of
// [functions] run the programs.
var typing = pages.Treatments{
	{Prefix: "kubectl apply -k placement/deploy/monitoring", Kind: pages.Skip, Why: noOperator},
	{Prefix: "kubectl rollout status ", Kind: pages.Skip, Why: noControllers},
	{Prefix: "kubectl delete pod --force", Kind: pages.Skip, Why: "it names no pod"},
	{Prefix: "kubectl delete -k placement/deploy/base", Instead: "stopController; kubectl delete --dry-run=server -k placement/deploy/base", Why: "no namespace ends here: test/cluster does it"},
	{Prefix: "kubectl "},
	{Prefix: "placement controller ", Instead: "runController ", Why: "it runs in the background, on no fixed ports"},
	{Prefix: "placement agent ", Instead: "runAgent ", Why: "it runs until the Queue is worked on"},
	{Prefix: "placement copy ", Kind: pages.Skip, Why: "test/images does it"},
	{Prefix: "helm ", Kind: pages.Skip, Why: "test/helm installs the chart"},
	{Prefix: "make ", Kind: pages.Skip, Why: "CI makes what the README has people make"},
	{Prefix: "go test ", Kind: pages.Skip, Why: "CI runs all tests"},
}

// functions are the shell functions of a reader. Each agent runs until it does its work or has
// written its file, and must then end in order.
const functions = `
runController() {
  POD_NAMESPACE=placement-system placement controller --metrics-bind-address=0 --health-probe-bind-address=0 "$@" 4>&- & controller=$!
}
stopController() { kill $controller && wait $controller; }
runAgent() {
  placement agent --lease-duration=5s "$@" & agent=$!
  case "$*" in
  *--file*) until grep -q orders files/contract.json; do sleep 0.1; done ;;
  *) kubectl wait --for=jsonpath='{.status.readyVReplicas}'=6 queue/orders --timeout=3m ;;
  esac && kill $agent && wait $agent
}
`

// TestCommandsOfThePages types every command of the pages. In the end, nothing of the pool is left.
func TestCommandsOfThePages(t *testing.T) {
	c, shell := newReader(t)
	for _, name := range typedPages {
		checkAutoscalers(t, shell, name)
		walk := &pages.Walk{
			Page: pageOf(t, name), Treatments: typing, Shell: shell, LookFor: patience,
			Names: strings.NewReplacer("POOL", "worker", "NAMESPACE", shop, "lease POD", "lease worker-0", "worker-3", "worker-0", "/run/placement", "files"),
		}
		_, err := walk.Type(t.Context(), t.Logf)
		require.NoError(t, err)
	}
	inPool := []client.ListOption{client.InNamespace(shop), client.HasLabels{contract.PoolLabel}}
	leases, contracts, bindings := &coordinationv1.LeaseList{}, &corev1.ConfigMapList{}, &rbacv1.RoleBindingList{}
	require.NoError(t, c.List(t.Context(), leases, inPool...))
	require.NoError(t, c.List(t.Context(), contracts, inPool...))
	require.NoError(t, c.List(t.Context(), bindings, client.InNamespace(shop)))
	assert.Empty(t, leases.Items)
	assert.Empty(t, contracts.Items)
	assert.Empty(t, bindings.Items)
	q := queues.New(shop, queue, 0)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(q), q))
	_, hasStatus, err := unstructured.NestedFieldNoCopy(q.Object, "status")
	require.NoError(t, err)
	assert.False(t, hasStatus)
}

// checkAutoscalers has the API server check the HorizontalPodAutoscalers of a page. test/monitoring
// evaluates their queries.
func checkAutoscalers(t *testing.T, shell *pages.Shell, name string) {
	t.Helper()
	blocks, _ := read(t, name)
	for _, block := range blocks {
		if !slices.Contains(block.Lines, "kind: HorizontalPodAutoscaler") {
			continue
		}
		out, err := shell.Run(t.Context(), "kubectl apply --dry-run=server --validate=strict -f - <<'END'\n"+strings.Join(block.Lines, "\n")+"\nEND")
		require.NoError(t, err, out)
		assert.Equal(t, "horizontalpodautoscaler.autoscaling/worker created (server dry run)\n", out)
	}
}

// pageOf returns a page whose steps are all commands in the order in which they stand there: those
// in blocks, and those of three words or more in the text. A block that is a file has none.
func pageOf(t *testing.T, name string) *pages.Page {
	t.Helper()
	blocks, text := read(t, name)
	p := &pages.Page{Name: name, Text: text}
	for _, block := range blocks {
		if !isScript(block) {
			p.Steps = append(p.Steps, block.Steps()...)
		}
	}
	for _, line := range text {
		for _, code := range pages.Spans(line.Text) {
			words := strings.Fields(code)
			if len(words) > 2 && slices.Contains([]string{"kubectl", "placement"}, words[0]) {
				p.Steps = append(p.Steps, pages.Step{Line: line.Number, Script: code})
			}
		}
	}
	slices.SortStableFunc(p.Steps, func(a, b pages.Step) int { return a.Line - b.Line })
	return p
}

// read returns the blocks and the text of a page.
func read(t *testing.T, name string) ([]pages.Block, []pages.Line) {
	t.Helper()
	top, err := repository.Root()
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(top, filepath.FromSlash(name)))
	require.NoError(t, err)
	return pages.Parse(string(content))
}

func isScript(b pages.Block) bool { return len(b.Lines) > 0 && strings.HasPrefix(b.Lines[0], "#!") }

// newReader starts an API server, and opens a shell in a directory with the manifests, the file of
// the pools, and the worker of the README.
func newReader(t *testing.T) (client.Client, *pages.Shell) {
	t.Helper()
	controlplane.NeedKubectl(t)
	own, err := controlplane.Start(controlplane.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, own.Stop()) })
	c, err := client.New(own.Config, client.Options{})
	require.NoError(t, err)
	top, err := repository.Root()
	require.NoError(t, err)
	program, err := programs.Path("placement")
	require.NoError(t, err)
	scripts, _ := read(t, "placement/README.md")
	scripts = slices.DeleteFunc(scripts, func(b pages.Block) bool { return !isScript(b) })
	require.Len(t, scripts, 1)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "files"), 0o700))
	require.NoError(t, os.Symlink(filepath.Join(top, "placement"), filepath.Join(dir, "placement")))
	require.NoError(t, os.Symlink(filepath.Join(top, "placement", "examples", "queue", "pools.yaml"), filepath.Join(dir, "pools.yaml")))
	for name, text := range map[string]string{"my-worker": strings.Join(scripts[0].Lines, "\n") + "\n", "consume": "#!/bin/sh\nexec sleep 1000\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
	}
	shell := pages.NewShell(t, dir, "KUBECONFIG="+own.Kubeconfig, "PATH="+strings.Join([]string{filepath.Dir(program), dir, os.Getenv("PATH")}, ":"),
		"POD_NAME=worker-0", "POD_UID=7c9ab4c5-17f9-4a6b-b4fd-6cb2da2c1ae4")
	_, err = shell.Run(t.Context(), functions+"kubectl config set-context --current --namespace="+shop)
	require.NoError(t, err)
	return c, shell
}
