package browser_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/plugin/ui"
	"nodekeeper.dev/internal/txn"
)

// pictures is where TestPageInEveryWidth leaves what it sees, for a person to look at.
var pictures = flag.String("pictures", "", "write the pictures of each width into this `directory`")

// screen is a size of a window: a phone, half of a laptop's screen, a laptop.
type screen struct{ width, height int }

var screens = []screen{{360, 740}, {800, 900}, {1280, 900}}

// fillPanels gives every panel something to show: a queue, activity, and replicas in each state.
func fillPanels(feed *ui.Feed) {
	for i := range 6 {
		n, r := node(i, "r1")
		if i < 2 {
			feed.Node(n, nil, false)
		}
		feed.Record(nil, r, false)
		t := txn.Of(txn.Updated, nodeview.View{}.OfMetadata(n.DeepCopy())).ConfigMap(transactions)
		t.CreationTimestamp = metav1.Now()
		feed.Transaction(nil, t, false)
	}
	for _, service := range []string{inspect.WatcherService, inspect.ProcessorService} {
		for i, since := range []time.Duration{0, 10 * time.Second, 20 * time.Second} {
			name := fmt.Sprintf("%s-5d8b6c7f9-x2vl%d", service, i)
			renewed := metav1.NewMicroTime(time.Now().Add(-since))
			feed.Lease(nil, &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"nodekeeper.dev/ring": service}},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(15)), RenewTime: &renewed},
			})
		}
	}
	feed.Tick(time.Now())
}

// TestPageInEveryWidth checks that nothing is squeezed, cut off or out of reach, from a phone to a
// laptop, in light and dark.
func TestPageInEveryWidth(t *testing.T) {
	feed, server := newServer(200, ui.Config{})
	fillPanels(feed)
	link := server.Link(serve(t, server).Listener.Addr().String())
	b := newTab(t)
	b.visit(link)
	b.until(live)
	for _, size := range screens {
		t.Logf("%d by %d", size.width, size.height)
		b.do(chromedp.EmulateViewport(int64(size.width), int64(size.height)))
		b.until(`innerWidth === %d && document.querySelectorAll('#rows .row:not([hidden])').length > 5 && document.querySelectorAll('#queue li').length === 6`, size.width)
		b.until(`document.getAnimations().length === 0`)
		b.checkFits(size)
		b.checkPanels()
		b.leavePictures(strconv.Itoa(size.width))
		b.checkDetail(size)
	}
}

// checkFits checks that nothing lies beside the window, and that rows show what they must.
func (b *tab) checkFits(size screen) {
	b.t.Helper()
	assert.LessOrEqual(b.t, eval[int](b, `document.documentElement.scrollWidth`), size.width, "it scrolls sideways")
	outside := eval[[]string](b, `[...document.querySelectorAll('header *, .panel .bar *, #nodes .bar *, .row:not([hidden]) > *, .member > *, .list li > *')]
		.filter((e) => e.checkVisibility() && !e.closest('.hidden, svg')).filter((e) => { const r = e.getBoundingClientRect(); return r.width > 0 && (r.right > innerWidth + 1 || r.left < 0); })
		.map((e) => e.className + ' ' + e.textContent.slice(0, 30))`)
	assert.Empty(b.t, outside)
	const first = `document.querySelector('#rows .row:not([hidden])')`
	for _, cell := range []string{"name", "labels", "saved"} {
		assert.True(b.t, eval[bool](b, `%s.querySelector('.c-%s').checkVisibility()`, first, cell), cell)
	}
	assert.GreaterOrEqual(b.t, eval[float64](b, `%s.querySelector('.c-name').clientWidth`, first), 210.0, "the name")
	assert.Empty(b.t, eval[[]string](b, `[...document.querySelectorAll('#rows .row:not([hidden]) .state')].filter((e) => e.parentElement.scrollWidth > e.parentElement.clientWidth).map((e) => e.textContent)`), "states that are cut off")
	assert.GreaterOrEqual(b.t, eval[int](b, `[...document.querySelectorAll('#rows .row:not([hidden])')].filter((e) => e.getBoundingClientRect().bottom <= innerHeight).length`), 6, "rows on the first screen")
}

// checkPanels checks that each panel shows its content, and can be reached.
func (b *tab) checkPanels() {
	b.t.Helper()
	for panel, least := range map[string]float64{"queue": 6 * 26, "happenings": 80, "replicas": 100} {
		assert.GreaterOrEqual(b.t, eval[float64](b, `document.querySelector('#%s').clientHeight`, panel), least, panel)
		b.exec(`document.querySelector('#%s').scrollIntoView({block: 'nearest'})`, panel)
		assert.True(b.t, eval[bool](b, `(() => { const r = document.querySelector('#%s').getBoundingClientRect(); return r.top < innerHeight && r.bottom > 0; })()`, panel), panel)
	}
	assert.Equal(b.t, []string{"ready", "silent 10s", "not alive"}, eval[[]string](b, `[...document.querySelectorAll('.service')[0].querySelectorAll('.member')].map((m) => m.children[2].textContent.replace(/1\ds/, '10s'))`))
	b.exec(`scrollTo(0, 0)`)
}

// checkDetail opens a node and closes it again.
func (b *tab) checkDetail(size screen) {
	b.t.Helper()
	b.click(`#rows .row:not([hidden])`)
	b.until(`document.querySelector('#detail-body').textContent.includes('The node has its saved labels.')`)
	top, width := eval[float64](b, `document.querySelector('#detail').getBoundingClientRect().top`), eval[float64](b, `document.querySelector('#detail').clientWidth`)
	assert.Less(b.t, top, float64(size.height)/3, "it is seen without scrolling")
	assert.GreaterOrEqual(b.t, width, 355.0)
	assert.True(b.t, eval[bool](b, `(() => { const r = document.querySelector('#close').getBoundingClientRect(); return r.top >= 0 && r.right <= innerWidth && r.bottom <= innerHeight; })()`), "its button to close it")
	b.leavePictures(fmt.Sprintf("%d-node", size.width))
	b.click(`#close`)
	b.until(`document.querySelector('#detail').hidden`)
	assert.True(b.t, eval[bool](b, `document.activeElement === document.querySelector('#grid')`))
}

// leavePictures checks the contrasts of both schemes, and takes a picture in each if they are
// wanted.
func (b *tab) leavePictures(name string) {
	b.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		assert.Empty(b.t, eval[[]string](b, contrasts), "%s %s", name, scheme)
		if *pictures != "" {
			require.NoError(b.t, os.WriteFile(filepath.Join(*pictures, name+"-"+scheme+".png"), b.shoot(page.CaptureScreenshotFormatPng), 0o600))
		}
	}
	b.scheme("light")
}
