package browser_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/plugin/ui"
	"nodekeeper.dev/internal/txn"
)

// TestPageReportsThatReplicasAreUnknown checks that the page does not claim that there are none.
func TestPageReportsThatReplicasAreUnknown(t *testing.T) {
	board := newBoard(t, 3)
	b := newTab(t)
	b.visit(board.url)
	b.until(live)
	replicas := `document.querySelector('#replicas').textContent`
	b.until(`%s === 'No replica has a place on a ring.'`, replicas)
	board.feed.Problem("replicas", errors.New("you may not list leases"))
	b.until(`%s === 'The replicas are not shown: you may not list leases'`, replicas)
}

// TestPageOmitsWhatIsNotReadYet: a node whose record may come is not called never seen, and
// the queue not empty.
func TestPageOmitsWhatIsNotReadYet(t *testing.T) {
	journal := ui.NewJournal()
	feed := ui.NewFeed(journal, "slow", func(*inspect.Survey, time.Time) ui.Health { return ui.Health{Unwell: []string{}, Stuck: []ui.Stuck{}} })
	n, r := node(0, "r1")
	feed.Node(nil, n, true)
	server := ui.New(ui.Config{Journal: journal, Source: source{feed}})
	link := server.Link(serve(t, server).Listener.Addr().String())
	b := newTab(t)
	b.visit(link)
	b.until(`document.querySelector('#empty').textContent === 'Reading the cluster …'`)
	assert.Equal(t, []string{"", "", ""}, eval[[]string](b, `['#queue-count', '#replicas', '#health'].map((e) => document.querySelector(e).textContent)`))
	feed.Record(nil, r, true)
	feed.Synced(time.Now())
	b.until(`document.querySelector('#queue-count').textContent === 'nothing is pending'`)
	b.until(`document.querySelector('#replicas').textContent === 'No replica has a place on a ring.'`)
	b.until(`document.querySelector('#rows .row:not([hidden]) .state').textContent === 'live'`)
}

// TestPageLinksWhatIsMalformedToItsNode, and nothing to a node that there is not.
func TestPageLinksWhatIsMalformedToItsNode(t *testing.T) {
	board := newBoard(t, 0)
	b := newTab(t)
	b.visit(board.url)
	b.until(live)
	n, _ := node(0, "r1")
	update := txn.Of(txn.Updated, nodeview.View{}.OfMetadata(n.DeepCopy()))
	known, gone := update.ConfigMap(transactions), update.ConfigMap(transactions)
	known.Name, gone.Name = "of-a-node", "of-no-node"
	delete(gone.Annotations, "nodekeeper.dev/node")
	board.feed.Transaction(nil, known, false)
	board.feed.Transaction(nil, gone, false)
	for _, list := range []string{"#queue", "#happenings"} {
		b.until(`document.querySelectorAll('%s .unlinked').length === 2`, list)
	}
	board.feed.Node(nil, n, false)
	another := known.DeepCopy()
	another.Name = "of-it-too"
	board.feed.Transaction(nil, another, false)
	for _, list := range []string{"#queue", "#happenings"} {
		b.until(`document.querySelectorAll('%s .link').length === 2`, list)
		assert.Equal(t, gone.Name, eval[string](b, `document.querySelector('%s .unlinked').textContent`, list))
		assert.Equal(t, n.Name, eval[string](b, `document.querySelector('%s .link').textContent`, list))
	}
	b.click(`#queue .link`)
	b.until(`document.querySelector('#detail-body').textContent.includes('The node has its saved labels.')`)
}
