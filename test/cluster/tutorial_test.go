package cluster_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/test/pages"
	"nodekeeper.dev/test/repository"
)

const (
	tutorialPage = "docs/tutorials/getting-started.md"
	// lookAgainFor is how long people repeat a command until it prints what the page shows.
	lookAgainFor = time.Minute
)

// loadImage and restartKubelet are what pages about minikube ask to replace. A kubelet goes on after
// the walk, so it must not have descriptor 4 of the shell.
var (
	loadImage      = pages.Treatment{Prefix: "minikube image load ", Instead: `"$CLUSTER_SCRIPTS/load-image.sh" `, Why: "the page: by what brings an image onto its nodes"}
	restartKubelet = pages.Treatment{Prefix: "minikube ssh --node=minikube-m02 -- sudo systemctl restart kubelet", Instead: `"$CLUSTER_SCRIPTS/node.sh" kubelet-restart minikube-m02 4>&-`, Why: "the page: by a way to restart a kubelet"}
)

// treatments have what the tutorial asks to replace, and what is typed as it is there. A command
// that is in none is a failure.
var treatments = pages.Treatments{
	{Prefix: "minikube start --nodes=2", Instead: "kubectl wait --for=condition=Ready node/minikube node/minikube-m02", Why: "the cluster is up"},
	loadImage, restartKubelet,
	{Prefix: "make images", Kind: pages.Build},
	{Prefix: "make build", Kind: pages.Build},
	{Prefix: "PATH=$PWD/bin:$PATH"},
	{Prefix: "kubectl apply "},
	{Prefix: "kubectl wait "},
	{Prefix: "kubectl label "},
	{Prefix: "kubectl delete "},
	{Prefix: "kubectl get ", Kind: pages.Look},
	{Prefix: "kubectl describe ", Kind: pages.Look},
	{Prefix: "kubectl logs ", Kind: pages.Look},
	{Prefix: "kubectl nodekeeper list", Kind: pages.Look},
	{Prefix: "kubectl nodekeeper explain ", Kind: pages.Look},
}

// notTyped are commands in the text of the tutorial that are suggestions, with the reason why they
// are not run with it.
var notTyped = map[string]string{
	"make images ARCH=arm64":                                "for another machine; hack/images has tests of both",
	"kubectl label node minikube-m02 rack-":                 "step 8, which TestWalk does",
	"kubectl get pods -n nodekeeper-system -o wide":         "step 8, which TestWalk does",
	"kubectl rollout restart deployment -n " + system:       "step 8, which TestWalk does",
	"minikube image load bin/images/nodekeeper-webhook.tar": "for the overlay ha, which TestWalk applies",
}

func readPage(t *testing.T, name string) *pages.Page {
	t.Helper()
	p, err := pages.Read(name)
	require.NoError(t, err)
	return p
}

// takes returns the duration that a page promises.
func takes(t *testing.T, p *pages.Page) time.Duration {
	t.Helper()
	promised, err := p.Promised(`It takes about (\w+) minutes`)
	require.NoError(t, err)
	return promised
}

// TestEveryCommandOfTheTutorialIsKnown needs no cluster.
func TestEveryCommandOfTheTutorialIsKnown(t *testing.T) {
	assert.Empty(t, treatments.Check(readPage(t, tutorialPage), notTyped))
}

// TestREADMEInstallsAsTheTutorialDoes compares the commands, and the minutes that the README and
// the tutorial promise.
func TestREADMEInstallsAsTheTutorialDoes(t *testing.T) {
	readme, tutorial := readPage(t, "README.md"), readPage(t, tutorialPage)
	promised, err := readme.Promised(`walks through it on minikube in (\w+) minutes`)
	require.NoError(t, err)
	assert.Equal(t, takes(t, tutorial), promised)
	blocks, _ := pages.Parse(pages.Section(readme.Content, "Install"))
	require.Len(t, blocks, 1)
	for _, step := range blocks[0].Steps() {
		assert.True(t, slices.ContainsFunc(tutorial.Steps, func(s pages.Step) bool { return s.Script == step.Command() }),
			"the tutorial does not have this command of the README: %s", step.Command())
	}
}

// TestTutorial types what the tutorial has people type, and compares what comes with what the page
// shows. Then it does the same with the page about the files of a release.
func TestTutorial(t *testing.T) {
	r := connect(t)
	defer r.becomeMinikube(t)()
	typeTutorial(t, treatments, namesOf(r), r.forScripts(t))
	if !t.Failed() {
		t.Run("FromARelease", r.typeRelease)
	}
}

// forScripts returns the setting of a shell that types pages.
func (r *realCluster) forScripts(t *testing.T) string {
	t.Helper()
	scripts, err := filepath.Abs(r.scripts)
	require.NoError(t, err)
	return scriptsEnv + "=" + scripts
}

// typeTutorial types the tutorial into a shell with these settings, and compares what comes with
// what the page shows, after the names on it were replaced.
func typeTutorial(t *testing.T, all pages.Treatments, names *strings.Replacer, settings ...string) {
	t.Helper()
	p := readPage(t, tutorialPage)
	root, err := repository.Root()
	require.NoError(t, err)
	typePage(t, &pages.Walk{Page: p, Treatments: all, Shell: pages.NewShell(t, root, settings...), Names: names, Adapt: withoutFields(t, p)})
}

// typePage types a page, which may take no longer than it promises.
func typePage(t *testing.T, walk *pages.Walk) {
	t.Helper()
	walk.LookFor = lookAgainFor
	took, err := walk.Type(t.Context(), t.Logf)
	require.NoError(t, err)
	assert.Less(t, took, takes(t, walk.Page), "the duration promised by the page")
}

// startMinikube starts minikube as on the page, and removes the labels that minikube sets, which
// the page does not show.
const startMinikube = "minikube start --nodes=2 && kubectl label nodes --all minikube.k8s.io/{name,primary,version,commit,updated_at}- " +
	"node-role.kubernetes.io/control-plane- node.kubernetes.io/exclude-from-external-load-balancers-"

// TestTutorialOnMinikube types the tutorial, where MINIKUBE=1 allows minikube to start a cluster on
// this machine.
func TestTutorialOnMinikube(t *testing.T) {
	if os.Getenv("MINIKUBE") != "1" {
		t.Skip("MINIKUBE is not 1")
	}
	literal := slices.Clone(treatments)
	for i := range literal {
		literal[i].Instead, literal[i].Why = "", ""
	}
	literal[0].Instead = startMinikube
	typeTutorial(t, literal, strings.NewReplacer("amd64", runtime.GOARCH))
}

// namesOf replaces the names of the page's nodes, that of the transaction, which is derived from
// one, and the architecture.
func namesOf(r *realCluster) *strings.Replacer {
	const first, second = "minikube", "minikube-m02"
	last := r.nodes[len(r.nodes)-1]
	return strings.NewReplacer("overlays/"+first, "overlays/"+first, "install-"+first, "install-"+first, hashOf(second), hashOf(last), second, last, first, r.nodes[0], "amd64", runtime.GOARCH)
}

func hashOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// becomeMinikube makes the cluster one like that of the page: two new nodes, with the labels that
// every kubelet sets. It returns what ends that, wherever the walk has come to.
func (r *realCluster) becomeMinikube(t *testing.T) (end func()) {
	t.Helper()
	zone := corev1.LabelTopologyZone + "=" + r.nodeOf(t, r.nodes[0]).Labels[corev1.LabelTopologyZone]
	last := len(r.nodes) - 1
	for _, name := range r.nodes[1:last] {
		r.kubelet(t, "stop", name)
	}
	r.startOver(t, "", r.nodes[0], r.nodes[last])
	return func() {
		if t.Failed() {
			r.showServices(t)
		}
		r.startOver(t, zone, r.nodes...)
	}
}

// startOver removes nodekeeper, and all nodes and their events. The kubelets of some register with
// a label of their own then.
func (r *realCluster) startOver(t *testing.T, label string, nodes ...string) {
	t.Helper()
	r.kubectl(t, "delete", "-k", overlay("../uninstall"), "--ignore-not-found", "--timeout=2m")
	r.kubectl(t, "delete", "namespace", records, transactions, "--ignore-not-found", "--timeout=2m")
	r.kubectl(t, "delete", "node", "--all")
	r.kubectl(t, "delete", "events", "--all", "-n", metav1.NamespaceDefault)
	for _, name := range nodes {
		r.kubelet(t, "restart", name, label)
	}
	r.eventually(t, func(c *assert.CollectT) {
		found := &corev1.NodeList{}
		require.NoError(c, r.client.List(t.Context(), found))
		var ready []string
		for i := range found.Items {
			if isNodeReady(&found.Items[i]) {
				ready = append(ready, found.Items[i].Name)
			}
		}
		assert.ElementsMatch(c, nodes, ready)
	}, "the nodes are ready")
}

func isNodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(one corev1.NodeCondition) bool {
		return one.Type == corev1.NodeReady && one.Status == corev1.ConditionTrue
	})
}

// unfolded joins the lines that a page goes on with an indentation.
func unfolded(lines []string) []string {
	var all []string
	for _, line := range lines {
		if strings.HasPrefix(line, " ") && len(all) > 0 {
			all[len(all)-1] += strings.TrimSpace(line)
			continue
		}
		all = append(all, line)
	}
	return all
}

// without is how the page describes the log that it shows.
var without = regexp.MustCompile(`(?m)^.*without the fields (.*):$`)

// withoutFields removes the fields from a log that the page leaves out.
func withoutFields(t *testing.T, p *pages.Page) func(pages.Step, []string, []string) (shown, came []string) {
	t.Helper()
	found := without.FindStringSubmatch(p.Content)
	require.NotNil(t, found, "%s does not say which fields it leaves out", p.Name)
	names := strings.Join(pages.Spans(found[1]), "|")
	field := regexp.MustCompile(`"(?:` + names + `)":"[^"]*",|,"(?:` + names + `)":"[^"]*"`)
	return func(step pages.Step, shown, came []string) ([]string, []string) {
		if !strings.HasPrefix(step.Script, "kubectl logs ") {
			return shown, came
		}
		var all []string
		for _, line := range came {
			all = append(all, field.ReplaceAllString(line, ""))
		}
		return unfolded(shown), all
	}
}
