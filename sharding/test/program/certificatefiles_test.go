package program

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// volume is a directory into which a kubelet mounts a Secret of cert-manager: each file is a
// symbolic link into the directory ..data, which is itself a link that is replaced atomically.
type volume struct{ dir string }

// mount writes the files of a new certificate of a new authority for this machine, and returns
// that authority.
func (v volume) mount(t *testing.T, version string) (authority []byte) {
	t.Helper()
	chain, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	require.NoError(t, err)
	certificates, err := cert.ParseCertsPEM(chain)
	require.NoError(t, err)
	require.Len(t, certificates, 2, "a certificate and its authority")
	authority, err = cert.EncodeCertificates(certificates[1])
	require.NoError(t, err)

	files := filepath.Join(v.dir, ".."+version)
	require.NoError(t, os.Mkdir(files, 0o700))
	data := filepath.Join(v.dir, "..data")
	former, _ := os.Readlink(data) // there is none at first
	for name, content := range map[string][]byte{"tls.crt": chain, "tls.key": key, "ca.crt": authority} {
		require.NoError(t, os.WriteFile(filepath.Join(files, name), content, 0o600))
		if former == "" {
			require.NoError(t, os.Symlink(filepath.Join("..data", name), filepath.Join(v.dir, name)))
		}
	}
	require.NoError(t, os.Symlink(".."+version, data+"_tmp"))
	require.NoError(t, os.Rename(data+"_tmp", data))
	if former != "" {
		require.NoError(t, os.RemoveAll(filepath.Join(v.dir, former)))
	}
	return authority
}

// trusts waits until the webhooks of a ring have an authority as their caBundle, and a server has a
// certificate of it.
func (c *cluster) trusts(ring *v1alpha1.ClusterRing, authority []byte, address string) {
	c.t.Helper()
	roots := x509.NewCertPool()
	require.True(c.t, roots.AppendCertsFromPEM(authority))
	c.eventually(ring, func(t *assert.CollectT, _ *v1alpha1.ClusterRingStatus) {
		config := &admissionregistrationv1.MutatingWebhookConfiguration{}
		require.NoError(t, c.Get(c.t.Context(), types.NamespacedName{Name: "sharding-" + ring.Name}, config))
		require.NotEmpty(t, config.Webhooks)
		for _, hook := range config.Webhooks {
			assert.Equal(t, string(authority), string(hook.ClientConfig.CABundle))
		}
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}).DialContext(c.t.Context(), "tcp", address)
		require.NoError(t, err)
		assert.NoError(t, conn.Close())
	})
}

// TestCertificateFilesAreRotated covers R41 with --webhook-cert-dir: while objects are created, the
// files of a certificate and its authority are replaced. No create fails, all objects are
// assigned, and the sharder writes no Secret of its own.
func TestCertificateFilesAreRotated(t *testing.T) {
	t.Parallel()
	c := newSite(t)
	c.useWebhook()
	mounted := volume{t.TempDir()}
	authority := mounted.mount(t, "first")
	c.sharder("a", "--webhook-cert-dir="+mounted.dir)
	address := strings.TrimPrefix(c.webhook[0], "--webhook-bind-address=")
	ring := c.admitting(c.ring(""), "web-0", "web-1")
	c.trusts(ring, authority, address)
	c.assignsAtOnce(ring, "before")

	load := c.createAll(ring)
	c.trusts(ring, mounted.mount(t, "second"), address)
	c.assignsAtOnce(ring, "between")
	c.trusts(ring, mounted.mount(t, "third"), address)
	c.assignsAtOnce(ring, "after")
	load.end(c, ring)

	err := c.Get(t.Context(), types.NamespacedName{Namespace: sharderNamespace, Name: "sharder-webhook"}, &corev1.Secret{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
}
