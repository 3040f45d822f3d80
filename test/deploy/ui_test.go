package deploy_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/manifests"
	"nodekeeper.dev/test/programs"
)

// uiDir contains the page in the cluster, which users add to an overlay.
const uiDir = "ui"

func TestPageMayOnlyRead(t *testing.T) {
	t.Parallel()
	allowed := []string{"get", "list", "watch"}
	for one := range granted(t, render(t, uiDir)) {
		assert.Equal(t, "ui", one.Account)
		assert.Contains(t, allowed, one.Verb, one)
		assert.NotContains(t, one.Resource, "secrets")
	}
}

// TestPageOfTheClusterWorks uses the permissions and the flags of its manifests, and checks that
// its pod is admitted.
func TestPageOfTheClusterWorks(t *testing.T) {
	t.Parallel()
	var said warnings
	c := newCluster(t, &said)
	objects := render(t, uiDir)
	install(t, c)
	installObjects(t, c, objects)
	t.Cleanup(func() { // the next test uses a cluster without the page
		for _, obj := range objects {
			assert.NoError(t, client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), obj)))
		}
	})
	for _, obj := range objects {
		require.NoError(t, apply(t, c, obj, client.DryRunAll), "%s %s", obj.GetKind(), obj.GetName())
	}
	d := all[appsv1.Deployment](t, objects, "Deployment")[0]
	require.NoError(t, c.Create(t.Context(), manifests.PodOf(&d), client.DryRunAll))
	assert.Empty(t, said)

	name := "of-the-page"
	require.NoError(t, c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	t.Cleanup(func() {
		assert.NoError(t, c.Delete(context.WithoutCancel(t.Context()), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	})
	args := append([]string{"--kubeconfig=" + kubeconfigOf(t, c, "ui")}, d.Spec.Template.Spec.Containers[0].Args...)
	link := startPage(t, append(args, "--port=0")...)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar}
	get := func(address string) io.ReadCloser {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		require.NoError(t, err)
		answer, err := browser.Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, answer.Body.Close()) })
		require.Equal(t, http.StatusOK, answer.StatusCode)
		return answer.Body
	}
	get(link)
	origin, _, _ := strings.Cut(link, "?")
	detail, err := io.ReadAll(get(origin + "api/node?name=" + name))
	require.NoError(t, err)
	assert.Contains(t, string(detail), "No labels are saved for this node")
	assert.NotContains(t, string(detail), "rights")
	lines := bufio.NewReader(get(origin + "api/events"))
	for read := ""; !strings.Contains(read, `"synced":true`) || !strings.Contains(read, `"key":"`+name+`"`); {
		line, err := lines.ReadString('\n')
		require.NoError(t, err, read)
		read += line
		require.NotContains(t, read, `"kind":"problem"`)
	}
}

// kubeconfigOf returns a kubeconfig with the token of a service account.
func kubeconfigOf(t *testing.T, c *cluster, account string) string {
	t.Helper()
	return manifests.Kubeconfig(t, c, c.plane, systemNamespace, account)
}

var pageLink = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\?token=\w+`)

// startPage starts the program that serves the page, until the test ends, and returns the link.
func startPage(t *testing.T, args ...string) string {
	t.Helper()
	path, err := programs.Path("ui")
	require.NoError(t, err)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), path, args...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		assert.NoError(t, cmd.Process.Signal(os.Interrupt))
		assert.NoError(t, cmd.Wait())
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	require.Regexp(t, pageLink, line)
	return pageLink.FindString(line)
}
