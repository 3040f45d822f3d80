package service_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/internal/service"
	"nodekeeper.dev/test/controlplane"
)

func TestServiceEndsWhenTheClusterWasRewound(t *testing.T) {
	c, h := newClient(t), rewind.New()
	mgr, err := service.New(t.Context(), service.Config{Program: "watcher", Rewind: h, Options: &service.Options{
		Options:              daemon.Options{Kubeconfig: api.Kubeconfig, MetricsBindAddress: "0", HealthProbeBindAddress: "0"},
		TransactionNamespace: controlplane.Namespace(t, c), MetadataNamespace: controlplane.Namespace(t, c), MembershipNamespace: controlplane.Namespace(t, c),
	}})
	require.NoError(t, err)
	require.Error(t, h.Compare("10", "9"))
	require.ErrorIs(t, daemon.Run(t.Context(), mgr), rewind.ErrRewound)
}

// A write to an API server that shuts down would be sent to the next one, which may have another
// etcd.
func TestClientDoesNotRepeatWrites(t *testing.T) {
	target, err := url.Parse(api.Config.Host)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, err = rest.TransportFor(api.Config)
	require.NoError(t, err)
	var writes, reads atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isRead := r.Method == http.MethodGet
		if r.URL.Path == "/api/v1/namespaces/default/configmaps" && !isRead && writes.Add(1) == 1 ||
			r.URL.Path == "/api/v1/namespaces/default" && isRead && reads.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "The apiserver is shutting down, please try again later.", http.StatusTooManyRequests)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	mgr, err := connect(t, write(t, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
		c.Server, c.CertificateAuthorityData = server.URL, nil
	}))
	require.NoError(t, err)

	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "test-"}}
	err = mgr.GetClient().Create(t.Context(), cm)
	assert.True(t, apierrors.IsTooManyRequests(err), "%v", err)
	assert.EqualValues(t, 1, writes.Load())
	require.NoError(t, mgr.GetClient().Get(t.Context(), types.NamespacedName{Name: "default"}, &corev1.Namespace{}))
	assert.EqualValues(t, 2, reads.Load(), "a read may be")
}
