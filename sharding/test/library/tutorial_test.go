package library

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/pages"
	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/repository"
)

const tutorialPage = "sharding/docs/tutorial.md"

// treatments specify how the commands of the tutorial are typed: as on the page, with exceptions
// that state a reason.
var treatments = pages.Treatments{
	{Prefix: "make demo KEEP=1", Kind: pages.Skip, Why: "test/demo has a test of it; the test has an API server of its own"},
	{Prefix: "make build", Kind: pages.Skip, Why: "the programs of all tests are in bin/"},
	{Prefix: "export KUBECONFIG="},
	{Prefix: "kubectl create "},
	{Prefix: "kubectl config set-context --current "},
	{Prefix: "kubectl config view --raw --minify --flatten >"},
	{Prefix: "kubectl --kubeconfig=replicas.kubeconfig config "},
	{Prefix: "kubectl apply "},
	{Prefix: "kubectl wait "},
	{Prefix: "kubectl delete "},
	{Prefix: "kubectl get ", Kind: pages.Look},
	{Prefix: "bin/sharder "},
	{
		Prefix: "for i in 0 1 2; do\n  bin/example-checksum ", Instead: "for i in 0 1 2; do\n  bin/example-checksum --lease-duration=30s ",
		Why: "a busy machine may stand still for longer than the default of 15 s",
	},
	{Prefix: "for i in $(seq 30); do kubectl create "},
	{Prefix: bothKinds, Kind: pages.Look},
	{Prefix: "count() {"},
	{Prefix: "count", Kind: pages.Look},
	{Prefix: "sleep 5; count", Kind: pages.Look},
	{Prefix: "sleep 34; count", Kind: pages.Look},
	{Prefix: "sleep 2; tail ", Kind: pages.Look},
	{Prefix: "pkill "},
}

// notTyped are commands in the text of the tutorial that are not typed, with the reason.
var notTyped = map[string]string{
	"export KUBECONFIG=~/.kube/config": "for a cluster of one's own",
}

func readTutorial(t *testing.T) *pages.Page {
	t.Helper()
	p, err := pages.Read(tutorialPage)
	require.NoError(t, err)
	return p
}

func TestEveryCommandOfTheTutorialIsKnown(t *testing.T) {
	t.Parallel()
	assert.Empty(t, treatments.Check(readTutorial(t), notTyped))
}

// TestTutorial types the commands of the tutorial against an API server of its own and compares the
// output with the page.
func TestTutorial(t *testing.T) {
	t.Parallel()
	controlplane.NeedKubectl(t)
	plane, err := controlplane.Start(controlplane.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
	controlplane.NeedMutatingPolicies(t, plane.Kubeconfig) // as the page explains, a webhook needs --webhook-url
	p := readTutorial(t)
	promised, err := p.Promised(`In (\w+) minutes`)
	require.NoError(t, err)
	dir := clone(t)
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, dir)
		}
	})
	all := treatments
	if !controlplane.HasMutatingPolicies(t, plane.Kubeconfig) {
		all = append(pages.Treatments{{Prefix: "kubectl delete mutatingadmissionpolicybinding,", Kind: pages.Skip}}, all...) // the page: on 1.36 or newer
	}
	shown, came := placement{}, placement{}
	walk := &pages.Walk{
		Page: p, Treatments: all, Shell: pages.NewShell(t, dir), LookFor: patience, Names: ownKubeconfig(t, p, plane.Kubeconfig),
		Adapt: func(step pages.Step, ofPage, ofRun []string) ([]string, []string) {
			return shown.withoutShards(step, ofPage), came.withoutShards(step, ofRun)
		},
	}
	took, err := walk.Type(t.Context(), t.Logf)
	require.NoError(t, err)
	assert.Less(t, took, promised, "the duration promised by the page")
}

// clone creates a directory with the parts of a built clone that the tutorial uses.
func clone(t *testing.T) string {
	t.Helper()
	root, err := repository.Root()
	require.NoError(t, err)
	sharder, err := programs.Path("sharder")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Dir(sharder), filepath.Join(dir, "bin")))
	require.NoError(t, os.Symlink(filepath.Join(root, "sharding"), filepath.Join(dir, "sharding")))
	return dir
}

func showLogs(t *testing.T, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	assert.NoError(t, err)
	for _, log := range logs {
		content, err := os.ReadFile(log)
		assert.NoError(t, err)
		t.Logf("%s:\n%s", filepath.Base(log), content)
	}
}

// ownKubeconfig replaces the path of the demo's kubeconfig.
func ownKubeconfig(t *testing.T, p *pages.Page, path string) *strings.Replacer {
	t.Helper()
	ofDemo := regexp.MustCompile(`/tmp/nodekeeper-controlplane-\d+/kubeconfig`).FindString(p.Content)
	require.NotEmpty(t, ofDemo, "the page does not set the KUBECONFIG of the demo")
	return strings.NewReplacer(ofDemo, path)
}

// bothKinds shows Secrets and their ConfigMaps in one step: objects may still move to the shard
// that joined last.
const bothKinds = "for kind in secrets configmaps; do kubectl get "

var (
	// shardAtEnd matches the shard of an object in the last column.
	shardAtEnd = regexp.MustCompile(`\bchecksum-[0-2]$`)
	// shardCount matches the number of Secrets of a shard.
	shardCount = regexp.MustCompile(`^ *(\d+) (checksum-[0-2])$`)
)

// placement maps each Secret in the output of a command to its shard, which depends on the order in
// which the shards joined.
type placement map[string]string

// withoutShards removes the assignment of Secrets to shards from the output of a command. The rest
// must agree: which shards have any, that they have all Secrets together, and that each ConfigMap
// is at the shard of its Secret.
func (p placement) withoutShards(step pages.Step, lines []string) []string {
	switch {
	case strings.HasPrefix(step.Script, bothKinds):
		clear(p) // an object that has moved since the last attempt
		return mapLines(lines, func(line string) string {
			found := shardAtEnd.FindString(line)
			if found == "" {
				return line
			}
			name, isConfigMap := strings.CutPrefix(strings.Fields(line)[0], "checksums-")
			if !isConfigMap {
				p[name] = found
				return shardAtEnd.ReplaceAllString(line, "a shard")
			}
			if p[name] != found {
				return line
			}
			return shardAtEnd.ReplaceAllString(line, "the shard of its Secret")
		})
	case strings.HasSuffix(step.Script, "count"):
		all := 0
		lines = mapLines(lines, func(line string) string {
			found := shardCount.FindStringSubmatch(line)
			if found == nil {
				return line
			}
			n, _ := strconv.Atoi(found[1]) // it consists of digits
			all += n
			return found[2]
		})
		return append([]string{strconv.Itoa(all) + " Secrets"}, lines...)
	}
	return lines
}

func mapLines(lines []string, of func(string) string) []string {
	var all []string
	for _, line := range lines {
		all = append(all, of(strings.TrimRight(line, " ")))
	}
	return all
}
