package library

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/repository"
)

const (
	languagesPage = "sharding/docs/other-languages.md"
	// shortLease is that of a shard that is frozen until it is dead.
	shortLease = 9 * time.Second
	// mostInHand is how many requests the shard of the page in JavaScript can have in hand: to renew, to
	// watch, and to work. It may be frozen between the check of its right and the send.
	mostInHand = 3
	// worker is the annotation that shows which shard of the page has worked on a Secret.
	worker = "example.com/worker"
)

// fromThePage writes the shard in a language to a file.
func fromThePage(t *testing.T, language string) (file string) {
	t.Helper()
	root, err := repository.Root()
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, languagesPage))
	require.NoError(t, err)
	_, code, isThere := strings.Cut(string(page), "\n```"+language+"\n")
	require.True(t, isThere, language)
	code, _, _ = strings.Cut(code, "```\n")
	file = filepath.Join(t.TempDir(), "shard."+map[string]string{"bash": "sh", "js": "mjs"}[language])
	require.NoError(t, os.WriteFile(file, []byte(code), 0o600))
	return file
}

// TestShardsInOtherLanguages covers R45: the shards of the page share objects, hand them over,
// return under their name, and stop when they were frozen for too long.
func TestShardsInOtherLanguages(t *testing.T) {
	t.Parallel()
	controlplane.NeedKubectl(t)
	c := newCluster(t, func(r *v1alpha1.ClusterRing) { r.Spec.Resources[0].ControlledResources = nil })
	c.secrets(20)
	bash, js := fromThePage(t, "bash"), fromThePage(t, "js")
	api := c.kubectlProxy()
	inBash := func(name string) *foreign { return c.foreign(name, longLease, api, "bash", bash) }

	first := inBash("bash-0")
	c.foreign("js-0", longLease, api, "node", js)
	c.worksOn("bash-0", "js-0")

	first.signal(syscall.SIGTERM)
	require.NoError(t, first.wait(), first.output())
	c.worksOn("js-0")

	inBash("bash-0")
	c.worksOn("bash-0", "js-0")

	var isAwake atomic.Bool
	var late, written atomic.Int32
	target, err := url.Parse(api)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(r *http.Response) error {
		if isAwake.Load() && r.Request.Method != http.MethodGet && r.StatusCode < http.StatusMultipleChoices {
			written.Add(1)
		}
		return nil
	}
	counted := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isAwake.Load() {
			late.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(counted.Close)
	frozen := c.frozenWithObjects("js-1", counted.URL, js)
	c.worksOn("bash-0", "js-0")
	isAwake.Store(true)
	frozen.signal(syscall.SIGCONT)
	require.Error(t, frozen.wait())
	assert.Contains(t, frozen.output(), "the Lease could not be renewed")
	assert.Zero(t, written.Load(), "no write succeeds after its right has ended")
	assert.LessOrEqual(t, late.Load(), int32(mostInHand), "it sends at most what it had in hand when it was frozen")
	c.worksOn("bash-0", "js-0")
}

// frozenWithObjects returns a frozen shard that has objects. Its Lease is short, so it starts again
// if the machine stalls, like a container.
func (c *cluster) frozenWithObjects(name, api, file string) *foreign {
	c.t.Helper()
	var f *foreign
	c.eventually(func(t *assert.CollectT) {
		if f == nil || f.hasEnded() {
			f = c.foreign(name, shortLease, api, "node", file)
		}
		require.NotZero(t, c.owners(t)[name])
		f.signal(syscall.SIGSTOP)
		if !assert.NotZero(t, c.owners(t)[name]) || !assert.False(t, f.hasEnded()) {
			f.signal(syscall.SIGCONT)
		}
	}, "it gets objects")
	return f
}

// worksOn waits until the objects are balanced, and each has been worked on by its shard.
func (c *cluster) worksOn(shards ...string) {
	c.t.Helper()
	c.eventually(func(t *assert.CollectT) {
		c.isBalanced(t, shards...)
		list := &corev1.SecretList{}
		require.NoError(t, c.List(c.t.Context(), list, client.InNamespace(c.namespace)))
		for _, s := range list.Items {
			assert.Equal(t, s.Labels[prefix.ShardLabel(c.ring.Name)], s.Annotations[worker], s.Name)
		}
	}, "each object is worked on by its shard")
}

// foreign is a process that does not use the library.
type foreign struct {
	cmd  *exec.Cmd
	text bytes.Buffer
	done chan struct{}
	err  error
}

// foreign starts a shard as in a pod. It ends with the test at the latest, and so do its children.
func (c *cluster) foreign(name string, lease time.Duration, api, command, file string) *foreign {
	c.t.Helper()
	f := &foreign{cmd: exec.CommandContext(context.WithoutCancel(c.t.Context()), command, file), done: make(chan struct{})}
	f.cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "API="+api, "RING="+c.ring.Name, "POD_NAME="+name, "POD_NAMESPACE="+c.namespace,
		"LEASE_SECONDS="+strconv.Itoa(int(lease.Seconds())))
	f.cmd.Stdout, f.cmd.Stderr = &f.text, &f.text
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(c.t, f.cmd.Start())
	go func() {
		defer close(f.done)
		f.err = f.cmd.Wait()
	}()
	c.t.Cleanup(func() {
		_ = syscall.Kill(-f.cmd.Process.Pid, syscall.SIGKILL)
		<-f.done
		if c.t.Failed() {
			c.t.Logf("%s:\n%s", name, f.output())
		}
	})
	return f
}

// signal sends a signal to the process alone, as the container runtime does.
func (f *foreign) signal(s syscall.Signal) { _ = f.cmd.Process.Signal(s) }

func (f *foreign) hasEnded() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

func (f *foreign) wait() error {
	select {
	case <-f.done:
		return f.err
	case <-time.After(patience):
		return errors.New("it still runs")
	}
}

// output returns the output of a process that has ended.
func (f *foreign) output() string { <-f.done; return f.text.String() }

// kubectlProxy starts a kubectl proxy, and returns its address.
func (c *cluster) kubectlProxy() string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "kubectl", "proxy", "--port=0", "--kubeconfig="+c.kubeconfig)
	out, err := cmd.StdoutPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, cmd.Start())
	c.t.Cleanup(func() { _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(c.t, err)
	return "http://" + regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
}
