package cluster_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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
	// lookAgainFor is how long people look again until a command prints what the page shows.
	lookAgainFor = time.Minute
)

// How the tutorial's commands are run.
type kind int

const (
	change kind = iota
	// look is a command that changes nothing, so it may be repeated.
	look
	// build is a change whose time does not count: it is that of the machine.
	build
)

// treatment is what is done with a command of the tutorial.
type treatment struct {
	prefix string
	kind   kind
	// instead replaces the prefix, unless it is empty, for the reason that why gives.
	instead, why string
}

// treatments have what the tutorial says to replace, and what is typed as it is there. A command
// that is in none is a failure.
var treatments = []treatment{
	{"minikube start --nodes=2", change, "kubectl wait --for=condition=Ready node/minikube node/minikube-m02", "the cluster is up"},
	{"minikube image load ", change, `"$CLUSTER_SCRIPTS/load-image.sh" `, "the page: by what brings an image onto its nodes"},
	{"minikube ssh --node=minikube-m02 -- sudo systemctl restart kubelet", change, `"$CLUSTER_SCRIPTS/node.sh" kubelet-restart minikube-m02`, "the page: by a way to restart a kubelet"},
	{prefix: "make images", kind: build},
	{prefix: "make build", kind: build},
	{prefix: "PATH=$PWD/bin:$PATH", kind: change},
	{prefix: "kubectl apply ", kind: change},
	{prefix: "kubectl wait ", kind: change},
	{prefix: "kubectl label ", kind: change},
	{prefix: "kubectl delete ", kind: change},
	{prefix: "kubectl get ", kind: look},
	{prefix: "kubectl describe ", kind: look},
	{prefix: "kubectl logs ", kind: look},
	{prefix: "kubectl nodekeeper list", kind: look},
	{prefix: "kubectl nodekeeper explain ", kind: look},
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

func treatmentOf(script string) (treatment, bool) {
	i := slices.IndexFunc(treatments, func(one treatment) bool { return strings.HasPrefix(script, one.prefix) })
	if i < 0 {
		return treatment{}, false
	}
	return treatments[i], true
}

// page is a page whose commands are run.
type page struct {
	name, content string
	steps         []pages.Step
	text          []pages.Line
}

func readPage(t *testing.T, name string) page {
	t.Helper()
	root, err := repository.Root()
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	blocks, text := pages.Parse(string(content))
	p := page{name: name, content: string(content), text: text}
	for _, block := range blocks {
		p.steps = append(p.steps, block.Steps()...)
	}
	require.NotEmpty(t, p.steps, name)
	return p
}

// promised is how long a page says that it takes.
func (p page) promised(t *testing.T, pattern string) time.Duration {
	t.Helper()
	promised, err := pages.Promised(p.content, pattern)
	require.NoError(t, err, p.name)
	return promised
}

func tutorialTakes(t *testing.T, p page) time.Duration {
	t.Helper()
	return p.promised(t, `It takes about (\w+) minutes`)
}

// TestEveryCommandOfTheTutorialIsKnown: in its blocks, by the treatments; in its text, as one that
// is typed in a block or with a reason why it is not.
func TestEveryCommandOfTheTutorialIsKnown(t *testing.T) {
	p := readPage(t, tutorialPage)
	used, programs := map[string]bool{}, map[string]bool{}
	for _, step := range p.steps {
		one, isKnown := treatmentOf(step.Script)
		assert.True(t, isKnown, "%s:%d: nothing says how to run this: %s", p.name, step.Line, step.Script)
		assert.True(t, one.kind != look || step.Shown != nil, "%s:%d: the page does not show what this prints: %s", p.name, step.Line, step.Script)
		used[one.prefix], programs[strings.Fields(step.Script)[0]] = true, true
	}
	for _, one := range treatments {
		assert.True(t, used[one.prefix], "%s has no such command: %s", p.name, one.prefix)
		assert.Equal(t, one.instead == "", one.why == "", one.prefix)
	}
	named := map[string]bool{}
	for _, line := range p.text {
		for _, code := range pages.Spans(line.Text) {
			if words := strings.Fields(code); len(words) < 2 || !programs[words[0]] {
				continue
			}
			isTyped := slices.ContainsFunc(p.steps, func(s pages.Step) bool { return strings.HasPrefix(s.Script, code) })
			assert.True(t, isTyped || notTyped[code] != "", "%s:%d: this is neither run nor has a reason why not: %s", p.name, line.Number, code)
			named[code] = true
		}
	}
	for code := range notTyped {
		assert.True(t, named[code], "%s has no such command: %s", p.name, code)
	}
}

// TestREADMEInstallsAsTheTutorialDoes, in as many minutes as the README says of it.
func TestREADMEInstallsAsTheTutorialDoes(t *testing.T) {
	readme, tutorial := readPage(t, "README.md"), readPage(t, tutorialPage)
	assert.Equal(t, tutorialTakes(t, tutorial), readme.promised(t, `walks through it on minikube in (\w+) minutes`))
	blocks, _ := pages.Parse(pages.Section(readme.content, "Install"))
	require.Len(t, blocks, 1)
	for _, step := range blocks[0].Steps() {
		assert.True(t, slices.ContainsFunc(tutorial.steps, func(s pages.Step) bool { return s.Script == step.Command() }),
			"the tutorial does not have this command of the README: %s", step.Command())
	}
}

// tutorial is a walk through the page on a real cluster.
type tutorial struct {
	page

	t        *testing.T
	shell    *shell
	names    *strings.Replacer // of the page's names by those of the cluster
	meanings pages.Meanings
	building time.Duration
}

// TestTutorial types what the tutorial has people type, and compares what comes with what the page
// shows.
func TestTutorial(t *testing.T) {
	r := connect(t)
	defer r.becomeMinikube(t)()
	p := &tutorial{page: readPage(t, tutorialPage), t: t, shell: newShell(t, r.scripts), names: namesOf(r), meanings: pages.Meanings{}}
	begin := time.Now()
	for _, step := range p.steps {
		p.run(step)
	}
	took := time.Since(begin) - p.building
	t.Logf("%d commands took %s, and builds %s", len(p.steps), took.Round(time.Second), p.building.Round(time.Second))
	assert.Less(t, took, tutorialTakes(t, p.page), "how long the page says that it takes")
}

// namesOf replaces the names of the page's nodes, that of the transaction, which is derived from
// one, and the architecture.
func namesOf(r *realCluster) *strings.Replacer {
	const first, second = "minikube", "minikube-m02"
	last := r.nodes[len(r.nodes)-1]
	return strings.NewReplacer("overlays/"+first, "overlays/"+first, hashOf(second), hashOf(last), second, last, first, r.nodes[0], "amd64", runtime.GOARCH)
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

// run types a command. One that only looks is repeated until it prints what the page shows.
func (p *tutorial) run(step pages.Step) {
	p.t.Helper()
	one, isKnown := treatmentOf(step.Script)
	require.True(p.t, isKnown, "%s:%d: nothing says how to run this: %s", p.name, step.Line, step.Script)
	script := step.Script
	if one.instead != "" {
		script = one.instead + strings.TrimPrefix(script, one.prefix)
	}
	script = p.names.Replace(script)
	shown := strings.Split(p.names.Replace(strings.Join(step.Shown, "\n")), "\n")
	begin := time.Now()
	for {
		came, err := p.shell.run(p.t.Context(), script)
		problem := p.compare(step, shown, came, err)
		if problem == "" {
			break
		}
		if one.kind != look || time.Since(begin) > lookAgainFor {
			require.FailNow(p.t, problem, "typed: %s\nthe page shows:\n%s\nwhat came (%v):\n%s", script, strings.Join(shown, "\n"), err, came)
		}
		time.Sleep(period)
	}
	if one.kind == build {
		p.building += time.Since(begin)
	}
	p.t.Logf("%s:%d: %s (%.1f s)", p.name, step.Line, script, time.Since(begin).Seconds())
}

// compare says what is wrong with what a command printed, "" if nothing is. Where the page shows
// nothing, anything may come.
func (p *tutorial) compare(step pages.Step, shown []string, came string, err error) string {
	switch {
	case err != nil:
		return fmt.Sprintf("%s:%d: the command fails", p.name, step.Line)
	case step.Shown == nil:
		return ""
	}
	lines := strings.Split(came, "\n")
	if strings.HasPrefix(step.Script, "kubectl logs ") {
		shown, lines = unfolded(shown), p.withoutFields(lines)
	}
	with, agreed, isSame := p.meanings.Agree(shown, lines)
	if !isSame {
		at := "something more than the page shows"
		if agreed < len(shown) {
			at = "not this line: " + shown[agreed]
		}
		return fmt.Sprintf("%s:%d: after %d lines that are as on the page came %s", p.name, step.Line, agreed, at)
	}
	p.meanings = with
	return ""
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

// without is what the page says of the log that it shows.
var without = regexp.MustCompile(`(?m)^.*without the fields (.*):$`)

// withoutFields removes the fields from a log that the page leaves out.
func (p *tutorial) withoutFields(lines []string) []string {
	found := without.FindStringSubmatch(p.content)
	require.NotNil(p.t, found, "%s does not say which fields it leaves out", p.name)
	names := strings.Join(pages.Spans(found[1]), "|")
	field := regexp.MustCompile(`"(?:` + names + `)":"[^"]*",|,"(?:` + names + `)":"[^"]*"`)
	var all []string
	for _, line := range lines {
		all = append(all, field.ReplaceAllString(line, ""))
	}
	return all
}
