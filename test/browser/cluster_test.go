package browser_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/programs"
)

const (
	transactions = "node-metadata-transactions"
	metadata     = "node-metadata"
	// latest is how late a change and the first paint may show, in the best of some rounds: a
	// machine that is busy makes any of them late.
	latest = time.Second
	rounds = 10
)

// cluster is an API server with nodekeeper's programs.
type cluster struct {
	t      *testing.T
	plane  *controlplane.ControlPlane
	client client.Client
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	plane, err := controlplane.Start(controlplane.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
	c, err := client.New(plane.Config, client.Options{})
	require.NoError(t, err)
	for _, name := range []string{transactions, metadata, ring.DefaultNamespace} {
		require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	return &cluster{t, plane, c}
}

// start starts a program and returns it when it is ready.
func (c *cluster) start(program, identity string, args ...string) *programs.Program {
	c.t.Helper()
	p, err := programs.Start(program, identity, c.plane.Kubeconfig, args...)
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		assert.NoError(c.t, p.Kill())
		if c.t.Failed() {
			c.t.Logf("%s said:\n%s", identity, p.Output())
		}
	})
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	require.NoError(c.t, p.WaitReady(ctx))
	return p
}

var linkPattern = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\?token=\w+`)

// contextName is the name that people use for the cluster.
const contextName = "production"

// kubeconfig returns one with that context.
func (c *cluster) kubeconfig() string {
	c.t.Helper()
	cfg, err := clientcmd.LoadFromFile(c.plane.Kubeconfig)
	require.NoError(c.t, err)
	cfg.Contexts[contextName] = cfg.Contexts[cfg.CurrentContext]
	cfg.CurrentContext = contextName
	path := filepath.Join(c.t.TempDir(), "kubeconfig")
	require.NoError(c.t, clientcmd.WriteToFile(*cfg, path))
	return path
}

// serve runs kubectl nodekeeper ui, and returns the links that it prints.
func (c *cluster) serve() <-chan string {
	c.t.Helper()
	path, err := programs.Path("kubectl-nodekeeper")
	require.NoError(c.t, err)
	cmd := exec.CommandContext(context.WithoutCancel(c.t.Context()), path, "ui", "--kubeconfig="+c.kubeconfig())
	cmd.Stderr = c.t.Output()
	out, err := cmd.StdoutPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, cmd.Start())
	c.t.Cleanup(func() {
		assert.NoError(c.t, cmd.Process.Signal(os.Interrupt))
		assert.NoError(c.t, cmd.Wait(), "an interrupt is no error")
	})
	links := make(chan string, 100)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			links <- linkPattern.FindString(lines.Text())
		}
	}()
	return links
}

func (c *cluster) next(links <-chan string) string {
	c.t.Helper()
	select {
	case link := <-links:
		return link
	case <-time.After(patience):
		require.Fail(c.t, "there is no link")
		return ""
	}
}

func (c *cluster) create(name string, labels map[string]string) {
	c.t.Helper()
	require.NoError(c.t, c.client.Create(c.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}))
}

func (c *cluster) delete(name string) {
	c.t.Helper()
	require.NoError(c.t, c.client.Delete(c.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

func (c *cluster) label(name, key, value string) {
	c.t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, key, value))
	require.NoError(c.t, c.client.Patch(c.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch))
}

// populate creates nodes as a small cluster has them.
func (c *cluster) populate() {
	for i := range 48 {
		name := fmt.Sprintf("worker-%02d", i+1)
		c.create(name, map[string]string{
			"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "topology.kubernetes.io/zone": fmt.Sprintf("eu-%c", 'a'+i%3),
			"rack": fmt.Sprintf("r%d", i/8+1), "example.com/team": []string{"blue", "green", "gold"}[i%3], "example.com/licence": "c-4711",
		})
	}
}

// TestPageShowsTheCluster runs the programs and the page, and looks at it as a person does.
func TestPageShowsTheCluster(t *testing.T) {
	c := newCluster(t)
	c.start("watcher", "watcher-7c9f4-x2vlp")
	c.start("watcher", "watcher-7c9f4-m8qtz")
	processors := []*programs.Program{
		c.start("processor", "processor-5d8b6-hk4wn", "--save-delay=0"), c.start("processor", "processor-5d8b6-r7jzc", "--save-delay=0"),
	}
	c.populate()
	links := c.serve()
	link := c.next(links)
	b := newTab(t)
	b.visit(link)
	b.until(live)
	b.until(`document.querySelectorAll('#rows .state.live').length >= 20`)
	c.checkPaint(b)
	assert.Equal(t, "48 nodes", eval[string](b, `document.querySelector('#shown').textContent`))

	assert.Equal(t, contextName, eval[string](b, `document.querySelector('#cluster').textContent`))
	c.checkSession(b, link, c.next(links))
	c.checkUpdates(b)
	c.checkReplicas(b)
	c.checkText(b)
	last := c.checkDiff(b, processors)
	if *update {
		require.NoError(t, last.Stop(patience))
		c.pictures(b)
	}
}

// checkSession looks at what protects the page: the link is used, the address does not show it, and
// no script has the cookie.
func (c *cluster) checkSession(b *tab, used, next string) {
	origin, _, _ := strings.Cut(used, "?")
	assert.Equal(c.t, origin, eval[string](b, `location.href`))
	assert.Empty(c.t, eval[string](b, `document.cookie`))
	held, err := chromedp.Call(b.ctx, network.GetCookies, network.GetCookiesParams{})
	require.NoError(c.t, err)
	if assert.Len(c.t, held.Cookies, 1) {
		assert.True(c.t, held.Cookies[0].HTTPOnly)
		assert.Equal(c.t, network.CookieSameSiteStrict, held.Cookies[0].SameSite)
	}
	for url, want := range map[string]int{used: http.StatusForbidden, origin: http.StatusUnauthorized, next: http.StatusOK} {
		answer, err := http.Get(url)
		require.NoError(c.t, err)
		assert.NoError(c.t, answer.Body.Close())
		assert.Equal(c.t, want, answer.StatusCode, url)
	}
	b.visit(origin) // by the cookie
	b.until(live)
}

// checkPaint opens the page until it is painted in time.
func (c *cluster) checkPaint(b *tab) {
	c.t.Helper()
	for range rounds {
		b.until(`performance.getEntriesByName('first-contentful-paint').length > 0`)
		took := eval[float64](b, `performance.getEntriesByName('first-contentful-paint')[0].startTime`)
		c.t.Logf("first contentful paint after %.0f ms", took)
		if took < float64(latest.Milliseconds()) {
			return
		}
		b.visit(eval[string](b, `location.href`))
		b.until(live)
	}
	assert.Fail(c.t, "the page is never painted in time")
}

// checkUpdates lets nodes go and come back until one is shown in time.
func (c *cluster) checkUpdates(b *tab) {
	c.t.Helper()
	for round := range rounds {
		name := "worker-00"
		if round > 0 {
			name = fmt.Sprintf("worker-00-%d", round)
		}
		if c.lateness(b, name) < latest {
			return
		}
	}
	assert.Fail(c.t, "no node is shown in time")
}

// lateness lets a node go and come back, and returns how late the page showed that at most.
func (c *cluster) lateness(b *tab, name string) time.Duration {
	c.t.Helper()
	var worst time.Duration
	measure := func(what string, happen func(), expression string) {
		start := time.Now()
		happen()
		b.until(expression)
		late := time.Since(start)
		c.t.Logf("%s shows after %d ms", what, late.Milliseconds())
		worst = max(worst, late)
	}
	row := rowOf(name)
	measure("a new node", func() {
		c.create(name, map[string]string{"kubernetes.io/hostname": name, "rack": "r9"})
	}, row)
	b.until(`%s.textContent.includes('live')`, row)
	happened := func(what string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('#happenings li')].some((e) => e.textContent.includes(%q) && e.textContent.includes(%q))`, what, name)
	}
	b.until(happened("saved"))
	measure("a node that goes", func() { c.delete(name) }, row+`.textContent.includes('away')`)
	c.settled()
	measure("a restore, from the creation of the node on,", func() {
		c.create(name, map[string]string{"kubernetes.io/hostname": name})
	}, happened("restored"))
	b.until(`%s.textContent.includes('live')`, row)
	return worst
}

// settled waits until nothing is pending.
func (c *cluster) settled() {
	c.t.Helper()
	require.EventuallyWithT(c.t, func(ct *assert.CollectT) {
		var list corev1.ConfigMapList
		require.NoError(ct, c.client.List(c.t.Context(), &list, client.InNamespace(transactions)))
		assert.Empty(ct, list.Items)
	}, patience, 50*time.Millisecond)
}

// checkReplicas checks that the page shows every replica, and the share of each processor.
func (c *cluster) checkReplicas(b *tab) {
	text := `document.querySelector('#replicas').textContent`
	for _, want := range []string{"watcher-7c9f4-x2vlp", "watcher-7c9f4-m8qtz", "processor-5d8b6-hk4wn", "processor-5d8b6-r7jzc"} {
		b.until(`%s.includes(%q)`, text, want)
	}
	b.until(`document.querySelector('#health').textContent === 'well'`)
	sum := eval[float64](b, `[...document.querySelectorAll('.service')].find((r) => r.textContent.startsWith('processors')).querySelectorAll('.member').values()
		.map((m) => parseFloat(m.lastChild.textContent)).reduce((a, b) => a + b, 0)`)
	assert.InDelta(c.t, 100, sum, 0.2, "the processors share all nodes")
}

// hostile is a text that would do something if it were taken for HTML.
const hostile = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`

// checkText: what others write is text, whatever is in it. The note of an event may be anything.
func (c *cluster) checkText(b *tab) {
	n := &corev1.Node{}
	require.NoError(c.t, c.client.Get(c.t.Context(), types.NamespacedName{Name: "worker-01"}, n))
	require.NoError(c.t, c.client.Create(c.t.Context(), &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "hostile"}, EventTime: metav1.NowMicro(), ReportingController: "nodekeeper-forged",
		ReportingInstance: "forged", Action: "Forge", Reason: "Forged", Type: corev1.EventTypeNormal, Note: hostile,
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID},
	}))
	b.exec(`document.querySelector('#grid').focus()`)
	b.key(escape + "/" + "worker-01" + enter)
	b.until(`%s?.getAttribute('aria-selected') === 'true'`, rowOf("worker-01"))
	b.key(enter)
	b.until(`document.querySelector('#detail-body').textContent.includes(%q)`, hostile)
	assert.Zero(c.t, eval[int](b, `document.querySelectorAll('#detail img, #detail script').length`))
	assert.NotEqual(c.t, "owned", eval[string](b, `document.title`))
	b.key(escape + "/" + escape)
	b.until(`document.querySelector('#detail').hidden && document.querySelector('#search').value === ''`)
}

// checkDiff: without a processor, a change is pending, and differs from the saved labels. Then
// one starts.
func (c *cluster) checkDiff(b *tab, processors []*programs.Program) *programs.Program {
	for _, p := range processors {
		require.NoError(c.t, p.Stop(patience))
	}
	b.until(`document.querySelector('#health').textContent.includes('no ready processor')`)
	const name = "worker-07"
	c.label(name, "rack", "r12")
	c.label(name, "example.com/maintenance", "planned")
	for _, gone := range []string{"worker-11", "worker-23"} {
		c.delete(gone)
	}
	c.create("worker-23", map[string]string{"kubernetes.io/hostname": "worker-23"})
	b.until(`document.querySelectorAll('#queue li').length >= 5`)
	b.exec(`document.querySelector('#grid').focus()`)
	b.key("/worker-07" + enter + enter)
	b.until(`[...document.querySelectorAll('.diff tr.differs')].some((r) => r.textContent.includes('rack') && r.textContent.includes('r1') && r.textContent.includes('r12'))`)
	b.until(`document.querySelector('#detail-body').textContent.includes('no processor is ready')`)
	b.key("/" + escape)
	last := c.start("processor", "processor-5d8b6-b6dss", "--save-delay=0")
	b.until(`document.querySelectorAll('.diff tr.differs').length === 0 && document.querySelector('#detail-body').textContent.includes('The node has its saved labels.')`)
	b.key(escape)
	b.until(`document.querySelectorAll('#queue li').length === 0`)
	b.until(`document.querySelector('#health').textContent === 'well'`)
	return last
}

// pictures takes the pictures of docs while something happens: nodes are away, have come back, and
// changes wait to be saved.
func (c *cluster) pictures(b *tab) {
	c.start("processor", "processor-5d8b6-t2xqv", "--save-delay=1m")
	for _, gone := range []int{3, 4, 17, 18, 19, 31, 40} {
		c.delete(fmt.Sprintf("worker-%02d", gone))
	}
	b.until(`document.querySelectorAll('#queue li').length === 7`)
	for _, back := range []int{17, 18, 40} {
		name := fmt.Sprintf("worker-%02d", back)
		c.create(name, map[string]string{"kubernetes.io/hostname": name})
	}
	b.until(`document.querySelector('#happenings li').textContent.includes('restored')`)
	for _, changed := range []int{9, 10, 22, 23} {
		c.label(fmt.Sprintf("worker-%02d", changed), "rack", "r12")
	}
	c.label("worker-10", "example.com/maintenance", "planned")
	b.until(`document.querySelector('#queue').textContent.includes('worker-23')`)
	b.picture("ui")
	b.key("/worker-10" + enter + "/" + escape + enter)
	b.until(`document.querySelectorAll('.diff tr.differs').length === 2`)
	b.picture("ui-node")
}

// picture takes a picture of docs, in both schemes, when nothing moves.
func (b *tab) picture(name string) {
	b.t.Helper()
	b.until(`document.getAnimations().length === 0`)
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		require.NoError(b.t, os.WriteFile(filepath.Join("..", "..", "docs", "pictures", name+"-"+scheme+".webp"), b.shoot(page.CaptureScreenshotFormatWebp), 0o644))
	}
	b.scheme("light")
}
