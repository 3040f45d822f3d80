package cluster_test

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/pages"
	"nodekeeper.dev/test/repository"
)

const (
	placementTutorial = "placement/docs/tutorial.md"
	placementSystem   = "placement-system"
	shop              = "shop" // the namespace of the example
)

// placementDir is the directory of the controller with the example.
var placementDir = filepath.Join("..", "..", "placement", "deploy")

// placementTreatments type the tutorial of placement as it is on the page, on the cluster that is up.
var placementTreatments = pages.Treatments{
	{Prefix: "minikube start", Kind: pages.Skip, Why: "the cluster is up"},
	loadImage,
	{Prefix: "make images", Kind: pages.Build},
	{Prefix: "cat ", Kind: pages.Look},
	{Prefix: "who() {"},
	{Prefix: "who", Kind: pages.Look},
	{Prefix: "queue() {"},
	{Prefix: "queue add "},
	{Prefix: "queue check "},
	{Prefix: "kubectl apply "},
	{Prefix: "kubectl delete "},
	{Prefix: "kubectl scale "},
	{Prefix: "kubectl annotate "},
	{Prefix: "kubectl rollout "},
	{Prefix: "kubectl get ", Kind: pages.Look},
}

// differences are what differs from run to run, besides what package pages knows: the number of a
// join in an incarnation, the hash in an acknowledgement, and the processes of workers.
var differences = []struct{ pattern, with string }{
	{`/[0-9a-f]{8}-15s`, "/RUN"},
	{`"digest":"[0-9a-f]{16}"`, `"digest":"HASH"`},
	{`(worker-\d)/\d+`, "$1/PROCESS"},
}

func withoutDifferences(lines []string) (all []string) {
	for _, line := range lines {
		for _, d := range differences {
			line = regexp.MustCompile(d.pattern).ReplaceAllString(line, d.with)
		}
		all = append(all, line)
	}
	return all
}

func TestEveryCommandOfThePlacementTutorialIsKnown(t *testing.T) {
	assert.Empty(t, placementTreatments.Check(readPage(t, placementTutorial), map[string]string{
		"queue serve": "the pod of the queue runs it",
		"queue work":  "the agents run it",
		"queue check": "typed with --wait",
	}))
}

// TestPlacementTutorial types the tutorial of placement.
func TestPlacementTutorial(t *testing.T) {
	r := connect(t)
	defer r.removePlacement(t)
	root, err := repository.Root()
	require.NoError(t, err)
	p := readPage(t, placementTutorial)
	walk := &pages.Walk{
		Page: p, Treatments: placementTreatments, Shell: pages.NewShell(t, root, r.forScripts(t)), LookFor: lookAgainFor,
		Adapt: func(_ pages.Step, shown, came []string) ([]string, []string) {
			return withoutDifferences(shown), withoutDifferences(came)
		},
	}
	took, err := walk.Type(t.Context(), t.Logf)
	require.NoError(t, err)
	promised, err := p.Promised(`In (\w+) minutes`)
	require.NoError(t, err)
	assert.Less(t, took, promised, "the duration promised by the page")
}

// removePlacement removes what the tutorial or the walk has installed, wherever it has come to.
func (r *realCluster) removePlacement(t *testing.T) {
	t.Helper()
	if t.Failed() {
		r.showPlacement(t)
	}
	r.kubectl(t, "delete", "-k", placementDir, "--ignore-not-found", "--timeout=2m")
}

// showPlacement prints the state of placement and its example.
func (r *realCluster) showPlacement(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"get", "queues", "-n", shop, "-o", "yaml"},
		{"get", "configmaps,leases,events", "-n", shop},
		{"get", "pods", "-A", "-o", "wide"},
		{"logs", "-n", placementSystem, "-l", "app.kubernetes.io/name=placement-controller", "--prefix", "--tail=60"},
		{"logs", "-n", shop, "-l", "app.kubernetes.io/name=worker", "--prefix", "--tail=20"},
	} {
		show(t, args...)
	}
}
