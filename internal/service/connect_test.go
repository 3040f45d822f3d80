package service_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/service"
	"nodekeeper.dev/test/controlplane"
)

// newClient returns a client with all permissions.
func newClient(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(api.Config, client.Options{})
	require.NoError(t, err)
	return c
}

// connect creates a service with existing namespaces that needs no permissions.
func connect(t *testing.T, kubeconfig string) (manager.Manager, error) {
	t.Helper()
	c := newClient(t)
	return service.New(t.Context(), service.Config{Program: "watcher", Options: &service.Options{
		Options:              daemon.Options{Kubeconfig: kubeconfig, MetricsBindAddress: "0", HealthProbeBindAddress: "0"},
		TransactionNamespace: controlplane.Namespace(t, c), MetadataNamespace: controlplane.Namespace(t, c), MembershipNamespace: controlplane.Namespace(t, c),
	}})
}

// write writes a kubeconfig like the control plane's, with changes.
func write(t *testing.T, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) (path string) {
	t.Helper()
	cfg, err := clientcmd.LoadFromFile(api.Kubeconfig)
	require.NoError(t, err)
	current := cfg.Contexts[cfg.CurrentContext]
	change(cfg.Clusters[current.Cluster], cfg.AuthInfos[current.AuthInfo])
	path = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*cfg, path))
	return path
}

// unreachable returns a kubeconfig for a port on which no server listens.
func unreachable(t *testing.T) (path, server string) {
	t.Helper()
	server = "https://" + freeAddress(t)
	return write(t, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = server }), server
}

func TestKubeconfigPrecedence(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	other, server := unreachable(t)
	home := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(home, ".kube"), 0o700))
	content, err := os.ReadFile(api.Kubeconfig)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(home, ".kube", "config"), content, 0o600))
	garbage := filepath.Join(home, "garbage")
	require.NoError(t, os.WriteFile(garbage, []byte("no kubeconfig"), 0o600))
	list := func(paths ...string) string { return strings.Join(paths, string(os.PathListSeparator)) }
	for name, tc := range map[string]struct {
		flag, env string
		want      string // in the error; "" for none
	}{
		"flag":                             {api.Kubeconfig, "", ""},
		"flag over environment":            {api.Kubeconfig, other, ""},
		"flag over a broken environment":   {api.Kubeconfig, garbage, ""},
		"other flag over environment":      {other, api.Kubeconfig, "cannot reach the API server at " + server},
		"missing flag file":                {missing, api.Kubeconfig, missing + ": no such file or directory: check --kubeconfig and KUBECONFIG"},
		"unreadable flag file":             {garbage, api.Kubeconfig, "check --kubeconfig and KUBECONFIG"},
		"environment":                      {"", api.Kubeconfig, ""},
		"environment, first wins":          {"", list(other, api.Kubeconfig), "cannot reach the API server at " + server},
		"environment, missing is left out": {"", list(missing, api.Kubeconfig), ""},
		"environment, empty is left out":   {"", list("", api.Kubeconfig, ""), ""},
		"environment, all missing":         {"", missing, "KUBECONFIG=" + missing + " names no usable kubeconfig"},
		"unreadable environment":           {"", garbage, "reading the kubeconfig"},
		"none, and no guess":               {"", "", "no cluster to connect to: set --kubeconfig or KUBECONFIG, or run in a pod"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HOME", home)
			t.Setenv("KUBECONFIG", tc.env)
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			_, err := connect(t, tc.flag)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			assert.NotContains(t, err.Error(), "\n", "an error is one line")
		})
	}
}

func TestPodWithoutServiceAccountIsReported(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "1")
	_, err := connect(t, "")
	require.ErrorContains(t, err, "reading the service account of the pod")
}

func TestUnreachableAPIServerIsNamed(t *testing.T) {
	path, server := unreachable(t)
	_, err := connect(t, path)
	require.ErrorContains(t, err, "cannot reach the API server at "+server+": check that it runs and that --kubeconfig or KUBECONFIG names it")
}

func TestAPIServerOfOtherAuthorityIsNotTrusted(t *testing.T) {
	path := write(t, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthorityData = nil })
	_, err := connect(t, path)
	require.ErrorContains(t, err, "cannot reach the API server")
	assert.ErrorContains(t, err, "x509")
}

func TestRejectedCredentialsAreReported(t *testing.T) {
	path := write(t, func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
		*user = clientcmdapi.AuthInfo{Token: "expired"}
	})
	_, err := connect(t, path)
	require.ErrorContains(t, err, "refuses these credentials: check the kubeconfig or the service account")
}

func TestClientReadsAPIServerDirectly(t *testing.T) {
	mgr, err := connect(t, api.Kubeconfig)
	require.NoError(t, err)
	require.NoError(t, mgr.GetClient().Get(t.Context(), types.NamespacedName{Name: "default"}, &corev1.Namespace{}), "no cache is started")
	assert.Contains(t, mgr.GetConfig().UserAgent, "nodekeeper-watcher/")
}

func TestAddressInUseIsReportedWithAdvice(t *testing.T) {
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, listener.Close()) })
	c := newClient(t)
	_, err = service.New(t.Context(), service.Config{Program: "watcher", Options: &service.Options{
		Options:              daemon.Options{Kubeconfig: api.Kubeconfig, MetricsBindAddress: "0", HealthProbeBindAddress: listener.Addr().String()},
		TransactionNamespace: controlplane.Namespace(t, c), MetadataNamespace: controlplane.Namespace(t, c), MembershipNamespace: controlplane.Namespace(t, c),
	}})
	require.ErrorContains(t, err, "give another --metrics-bind-address or --health-probe-bind-address, or 0 for none")
}
