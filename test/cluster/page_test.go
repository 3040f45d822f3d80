package cluster_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"regexp"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	pageLink  = regexp.MustCompile(`http://127\.0\.0\.1:8080/\?token=\w+`)
	forwarded = regexp.MustCompile(`^Forwarding from (127\.0\.0\.1:\d+) -> 8080`)
)

// openPage follows docs/how-to/use-the-live-page.md for the page in a cluster, with a port that is
// free on this machine.
func (w *walk) openPage() {
	w.kubectl(w.t, "apply", "-k", overlay("../ui"))
	w.kubectl(w.t, "wait", "--for=condition=Available", "-n", system, "deployment/ui", "--timeout="+patience.String())
	var link string
	w.eventually(w.t, func(c *assert.CollectT) {
		pods := w.podsOf(c, "ui")
		require.Len(c, pods, 1)
		link = pageLink.FindString(w.logOf(c, &pods[0]))
		assert.NotEmpty(c, link)
	}, "the log has the link")
	host := w.forward("deployment/ui")
	page, err := url.Parse(link)
	require.NoError(w.t, err)
	page.Host = host
	jar, err := cookiejar.New(nil)
	require.NoError(w.t, err)
	browser := &http.Client{Jar: jar}
	get := func(t require.TestingT, address string) io.ReadCloser {
		r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, address, nil)
		require.NoError(t, err)
		answer, err := browser.Do(r)
		require.NoError(t, err)
		w.t.Cleanup(func() { _ = answer.Body.Close() }) // the way to it is closed by now
		require.Equal(t, http.StatusOK, answer.StatusCode)
		return answer.Body
	}
	get(w.t, page.String())
	w.eventually(w.t, func(c *assert.CollectT) {
		var found struct{ Names []string }
		require.NoError(c, json.NewDecoder(get(c, "http://"+host+"/api/matching?selector=")).Decode(&found))
		assert.ElementsMatch(c, w.nodes, found.Names)
	}, "the page shows the nodes")
	w.kubectl(w.t, "delete", "-k", overlay("../ui"), "--timeout=2m")
}

// forward has kubectl forward a port until the step ends, and returns the address on this machine.
func (w *walk) forward(to string) string {
	cmd := exec.CommandContext(w.t.Context(), "kubectl", "port-forward", "-n", system, to, ":8080")
	cmd.Stderr = w.t.Output()
	out, err := cmd.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, cmd.Start())
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill() // unless it has ended with what it forwards to
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(w.t, err)
	found := forwarded.FindStringSubmatch(line)
	require.NotNil(w.t, found, line)
	return found[1]
}
