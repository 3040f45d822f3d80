package library

import (
	"net/http"
	"syscall"

	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/programs"
)

// away is an API server that does not respond and whose watches are silent.
type away struct{}

// Serve blocks until the API server is back. A request whose client has given up does not reach it.
func (away) Serve(w http.ResponseWriter, r *http.Request, next http.Handler, healed <-chan struct{}) {
	select {
	case <-healed:
		next.ServeHTTP(w, r)
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

// resume resumes a frozen process.
func (c *cluster) resume(p *programs.Program) {
	c.t.Helper()
	require.NoError(c.t, p.Signal(syscall.SIGCONT))
}
