package controlplane_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/controlplane"
)

// ownerEnv makes this test binary a process that owns a control plane and never stops it.
const ownerEnv = "CONTROLPLANE_TEST_OWNER"

var api *controlplane.ControlPlane

func TestMain(m *testing.M) {
	if os.Getenv(ownerEnv) != "" {
		os.Exit(own())
	}
	os.Exit(controlplane.Run(m, func(c *controlplane.ControlPlane) { api = c }))
}

// own starts a control plane, prints where it is, and waits for the end of standard input.
func own() int {
	c, err := controlplane.Start(controlplane.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _ = fmt.Fprintln(os.Stdout, c.Dir, c.Config.Host)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func TestAPIServerIsThePinnedVersion(t *testing.T) {
	d, err := discovery.NewDiscoveryClientForConfig(api.Config)
	require.NoError(t, err)
	version, err := d.ServerVersion()
	require.NoError(t, err)
	dir, err := controlplane.Assets()
	require.NoError(t, err)
	if _, kube, ok := strings.Cut(filepath.Base(dir), "controlplane-"); ok {
		assert.Equal(t, kube, version.Major+"."+version.Minor, "the release that make was asked for")
		return
	}
	assert.Contains(t, []string{"v1.37.2", "v1.37.0"}, version.GitVersion, "the built and the downloaded version")
	assert.Equal(t, "37", version.Minor)
}

func TestKubectlIsFoundWithTheControlPlane(t *testing.T) {
	elsewhere, assets := t.TempDir(), t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		require.NoError(t, os.WriteFile(filepath.Join(assets, name), nil, 0o700))
	}
	t.Setenv("PATH", elsewhere)
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	controlplane.NeedKubectl(t)
	found, err := exec.LookPath("kubectl")
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(assets, "kubectl"), found)

	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "kubectl"), nil, 0o700))
	controlplane.NeedKubectl(t)
	found, err = exec.LookPath("kubectl")
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(elsewhere, "kubectl"), found, "that of $PATH comes first")
}

func TestAdminWritesAndReads(t *testing.T) {
	c := newClient(t, api.Config)
	ns := controlplane.Namespace(t, c)
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "one"},
		Data:       map[string]string{"k": "v"},
	}
	require.NoError(t, c.Create(t.Context(), cm))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	require.NoError(t, c.Create(t.Context(), node))

	assert.NotEmpty(t, node.UID)
	assert.NotEqual(t, cm.ResourceVersion, node.ResourceVersion)
	var nodes corev1.NodeList
	require.NoError(t, newClient(t, load(t, api.Kubeconfig)).List(t.Context(), &nodes))
	assert.Len(t, nodes.Items, 1)
	assert.NoError(t, c.Delete(t.Context(), node, client.Preconditions{UID: &node.UID}))
}

func TestOtherUserIsForbiddenToListNodes(t *testing.T) {
	path, err := api.KubeconfigFor("system:serviceaccount:some:one", "some-group")
	require.NoError(t, err)
	err = newClient(t, load(t, path)).List(t.Context(), &corev1.NodeList{})
	require.True(t, apierrors.IsForbidden(err), "got %v", err)
	assert.ErrorContains(t, err, `User "system:serviceaccount:some:one" cannot list resource "nodes"`)
}

func TestNamespaceIsDeletedWithItsTest(t *testing.T) {
	c := newClient(t, api.Config)
	var name string
	t.Run("user", func(t *testing.T) { name = controlplane.Namespace(t, c) })
	var ns corev1.Namespace
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: name}, &ns))
	assert.NotNil(t, ns.DeletionTimestamp)
}

func TestStopEndsBothServersAndNoOthers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's new")
	c, err := controlplane.Start(controlplane.Options{
		Dir:           dir,
		APIServerArgs: map[string][]string{"audit-log-path": {filepath.Join(dir, "audit.log")}, "v": {"1"}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Stop()) })
	watcher, err := client.NewWithWatch(c.Config, client.Options{})
	require.NoError(t, err)
	_, err = watcher.Watch(t.Context(), &corev1.NodeList{})
	require.NoError(t, err, "an open watch must not hold up Stop")
	pids := []int{pid(t, dir, "etcd"), pid(t, dir, "kube-apiserver")}
	for _, p := range pids {
		require.NoError(t, syscall.Kill(p, 0))
	}

	require.NoError(t, c.Stop())

	for _, p := range pids {
		assert.Equal(t, syscall.ESRCH, syscall.Kill(p, 0))
	}
	assert.FileExists(t, c.Kubeconfig, "a directory that was given is kept")
	_, err = discovery.NewDiscoveryClientForConfigOrDie(api.Config).ServerVersion()
	require.NoError(t, err, "the other control plane")

	_, err = controlplane.Start(controlplane.Options{Dir: dir})
	require.ErrorIs(t, err, os.ErrExist, "a directory is used once")
}

func TestServersEndWithAnOwnerThatNeverStoppedThem(t *testing.T) {
	owner := exec.CommandContext(t.Context(), os.Args[0])
	owner.Env = append(os.Environ(), ownerEnv+"=1", "TMPDIR="+t.TempDir())
	owner.Stderr = os.Stderr
	_, err := owner.StdinPipe()
	require.NoError(t, err)
	stdout, err := owner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, owner.Start())
	t.Cleanup(func() { _ = owner.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	dir, host, _ := strings.Cut(strings.TrimSpace(line), " ")
	address := hostPort(t, host)
	require.NoError(t, dial(t, address))

	require.NoError(t, owner.Process.Kill())

	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Error(c, dial(t, address))
		assert.NoDirExists(c, dir)
	}, 3*time.Minute, 100*time.Millisecond)
}

func TestMissingBinariesAreAnError(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", t.TempDir())
	_, err := controlplane.Start(controlplane.Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, `run "make controlplane"`)
}

func TestFailedStartReportsTheLogOfTheServer(t *testing.T) {
	dir := t.TempDir()
	_, err := controlplane.Start(controlplane.Options{
		Dir:           dir,
		APIServerArgs: map[string][]string{"no-such-flag": {"1"}},
	})
	require.ErrorContains(t, err, "unknown flag: --no-such-flag")
	assert.Equal(t, syscall.ESRCH, syscall.Kill(pid(t, dir, "etcd"), 0))
}

func newClient(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(cfg, client.Options{})
	require.NoError(t, err)
	return c
}

func load(t *testing.T, kubeconfig string) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	return cfg
}

func pid(t *testing.T, dir, server string) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, server+".pid"))
	require.NoError(t, err)
	p, err := strconv.Atoi(strings.TrimSpace(string(content)))
	require.NoError(t, err)
	return p
}

func hostPort(t *testing.T, rawURL string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	require.NoError(t, err)
	return u.Host
}

func dial(t *testing.T, address string) error {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func TestServersComeBackWithTheirData(t *testing.T) {
	own, err := controlplane.Start(controlplane.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, own.Stop()) })
	c := newClient(t, own.Config)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	require.NoError(t, c.Create(t.Context(), node))

	for name, stop := range map[string]func(controlplane.Server) error{"stopped": own.StopServer, "killed": own.KillServer} {
		require.NoError(t, stop(controlplane.APIServer), name)
		require.NoError(t, stop(controlplane.Etcd), name)
		require.NoError(t, own.StartServer(controlplane.Etcd), name)
		require.NoError(t, own.StartServer(controlplane.APIServer), name)
		var kept corev1.Node
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(node), &kept), name)
		assert.Equal(t, node.UID, kept.UID, name)
	}
	for _, stop := range []func(controlplane.Server) error{own.StopServer, own.KillServer} {
		require.NoError(t, stop(controlplane.Etcd))
		require.NoError(t, own.StartServer(controlplane.Etcd))
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			assert.NoError(collect, c.Get(t.Context(), client.ObjectKeyFromObject(node), &corev1.Node{}))
		}, 3*time.Minute, 50*time.Millisecond, "the API server finds etcd again")
	}
}

func TestPoolLendsEachControlPlaneToOneAtATime(t *testing.T) {
	var started []*controlplane.ControlPlane
	pool := controlplane.Pool{New: func() (*controlplane.ControlPlane, error) {
		c, err := controlplane.Start(controlplane.Options{})
		started = append(started, c)
		return c, err
	}}
	t.Cleanup(func() { assert.NoError(t, pool.Stop()) })
	first, err := pool.Take()
	require.NoError(t, err)
	second, err := pool.Take()
	require.NoError(t, err)
	assert.NotSame(t, first, second)
	pool.Give(first)
	again, err := pool.Take()
	require.NoError(t, err)
	assert.Same(t, first, again, "it is lent once more")
	assert.Equal(t, []*controlplane.ControlPlane{first, second}, started)

	require.NoError(t, first.StopServer(controlplane.APIServer))
	pool.Give(second)
	pool.Give(first)
	again, err = pool.Take()
	require.NoError(t, err)
	assert.Same(t, second, again, "one that does not serve is not lent")

	require.NoError(t, pool.Stop())

	for _, c := range started {
		_, err := discovery.NewDiscoveryClientForConfigOrDie(c.Config).ServerVersion()
		assert.Error(t, err, "it is stopped, lent or not")
	}
}

// TestPortsAreNotEphemeral shows that no connection can have the port of a server that is just
// being started again.
func TestPortsAreNotEphemeral(t *testing.T) {
	content, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Skip("only Linux says which ports are ephemeral")
	}
	var first int
	_, err = fmt.Sscan(string(content), &first)
	require.NoError(t, err)
	for _, address := range []string{hostPort(t, api.Config.Host), hostPort(t, api.EtcdURL())} {
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		number, err := strconv.Atoi(port)
		require.NoError(t, err)
		assert.Less(t, number, first)
	}
}
