package signal_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/daemon/signal"
)

func TestSignalsUntilAReceiveCountAsOne(t *testing.T) {
	t.Parallel()
	s := signal.New()
	var senders sync.WaitGroup
	for range 10 {
		senders.Go(s.Send)
	}
	senders.Wait()
	assert.Len(t, s, 1)
	<-s
	assert.Empty(t, s)
	s.Send()
	assert.Len(t, s, 1)
}
