package daemon

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestProbeRunsChecksThatAreAddedMeanwhile: otherwise a request that comes while a program starts
// could find it started, and miss the checks added just before.
func TestProbeRunsChecksThatAreAddedMeanwhile(t *testing.T) {
	t.Parallel()
	p := &probes{}
	p.add(&p.ready, "start", func(*http.Request) error {
		p.add(&p.ready, "certificate", func(*http.Request) error { return errors.New("there is none") })
		return nil
	})
	w := httptest.NewRecorder()
	p.handler(&p.ready)(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody))
	assert.Equal(t, http.StatusInternalServerError, w.Code)
	assert.Equal(t, "[+]start: ok\n[-]certificate: there is none\n", w.Body.String())
}
