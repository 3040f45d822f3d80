package browser_test

import (
	"errors"
	"testing"
	"time"
)

// TestPageSaysThatReplicasAreUnknown: it does not say that there are none.
func TestPageSaysThatReplicasAreUnknown(t *testing.T) {
	board := newBoard(t, 3)
	b := newTab(t)
	b.visit(board.url)
	b.until(live)
	rings := `document.querySelector('#rings').textContent`
	b.until(`%s === 'No replica has a place on a ring.'`, rings)
	board.feed.Problem("replicas", errors.New("you may not list leases"), time.Now())
	b.until(`%s === 'The replicas are not shown: you may not list leases'`, rings)
}
