package servingcert_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"math/big"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"nodekeeper.dev/internal/daemon/servingcert"
	"nodekeeper.dev/test/controlplane"
)

const (
	// longest bounds the wait for something that should take a second, and tick is the polling
	// interval.
	longest = 3 * time.Minute
	tick    = 20 * time.Millisecond
)

// world is a namespace with a Secret, a Service and the permissions of a webhook, and its
// configuration.
type world struct {
	client.Client
	cfg  servingcert.Config
	user string // path of the kubeconfig of the replicas
	// called are the replicas in the webhook configuration.
	called []*replica
}

// users guards KubeconfigFor, which is not safe for concurrent use.
var users sync.Mutex

// newWorld returns a world without a Secret and without a webhook configuration.
func newWorld(t *testing.T, rotate bool) *world {
	t.Helper()
	c, err := client.New(api.Config, client.Options{})
	require.NoError(t, err)
	ns := controlplane.Namespace(t, c)
	w := &world{Client: c, cfg: servingcert.Config{
		Namespace: ns, Secret: "webhook-certificate", Service: "webhook", WebhookConfiguration: ns, Rotate: rotate,
	}}
	users.Lock()
	defer users.Unlock()
	w.user, err = api.KubeconfigFor(ns)
	require.NoError(t, err)
	w.grant(t)
	// The Service leads back to the test.
	w.create(t, &corev1.Service{ObjectMeta: w.meta("webhook"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}})
	return w
}

func (w *world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.cfg.Namespace, Name: name}
}

func (w *world) create(t *testing.T, o client.Object) {
	t.Helper()
	require.NoError(t, w.Create(t.Context(), o))
	t.Cleanup(func() {
		assert.NoError(t, client.IgnoreNotFound(w.Delete(context.WithoutCancel(t.Context()), o)))
	})
}

// grant grants the replicas exactly the permissions of the package comment.
func (w *world) grant(t *testing.T) {
	t.Helper()
	name, group := w.cfg.Namespace, rbacv1.GroupName
	verbs := []string{"get", "list", "watch"}
	if w.cfg.Rotate {
		verbs = append(verbs, "patch")
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: group, Name: name}}
	w.create(t, &rbacv1.Role{ObjectMeta: w.meta(name), Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{w.cfg.Secret}, Verbs: verbs},
	}})
	w.create(t, &rbacv1.RoleBinding{ObjectMeta: w.meta(name), Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: group, Kind: "Role", Name: name}})
	if !w.cfg.Rotate {
		return
	}
	w.create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{admissionregistrationv1.GroupName}, Resources: []string{"mutatingwebhookconfigurations"},
		ResourceNames: []string{name}, Verbs: verbs,
	}}})
	w.create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: group, Kind: "ClusterRole", Name: name}})
}

// createSecret creates the Secret as the manifests do.
func (w *world) createSecret(t *testing.T, data map[string][]byte) {
	t.Helper()
	w.create(t, &corev1.Secret{ObjectMeta: w.meta(w.cfg.Secret), Data: data})
}

// createConfiguration creates the configuration as the manifests do, with a webhook for each
// replica. All of them must allow every ConfigMap of the namespace.
func (w *world) createConfiguration(t *testing.T, replicas ...*replica) {
	t.Helper()
	config := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: w.cfg.WebhookConfiguration}}
	for i, r := range replicas {
		config.Webhooks = append(config.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: string(rune('a'+i)) + ".nodekeeper.dev",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Namespace: w.cfg.Namespace, Name: w.cfg.Service, Port: new(r.port)},
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.cfg.Namespace}},
			FailurePolicy:           new(admissionregistrationv1.Fail),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(int32(30)), // long, so that no call fails on a slow machine
			AdmissionReviewVersions: []string{"v1"},
		})
	}
	w.create(t, config)
	w.called = replicas
}

// call makes the API server call every webhook.
func (w *world) call(ctx context.Context) error {
	return w.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.cfg.Namespace, GenerateName: "call-"}}, client.DryRunAll)
}

// keepCalling makes consecutive calls until stop is called, which fails the test if any call
// failed.
func (w *world) keepCalling(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var calls atomic.Int64
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for ctx.Err() == nil {
			if err := w.call(ctx); err != nil && ctx.Err() == nil {
				failed <- err
				return
			}
			calls.Add(1)
		}
	}()
	t.Cleanup(cancel)
	return func() {
		t.Helper()
		after := calls.Load()
		assert.Eventually(t, func() bool { return calls.Load() > after+10 || len(failed) > 0 }, longest, tick, "nothing is called")
		cancel()
		assert.NoError(t, <-failed)
	}
}

func (w *world) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	var s corev1.Secret
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.cfg.Namespace, Name: w.cfg.Secret}, &s))
	return &s
}

// setData replaces all data of the Secret.
func (w *world) setData(t *testing.T, data map[string][]byte) {
	t.Helper()
	s := w.secret(t)
	s.ResourceVersion, s.Data = "", data
	require.NoError(t, w.Update(t.Context(), s))
}

func (w *world) configuration(t *testing.T) *admissionregistrationv1.MutatingWebhookConfiguration {
	t.Helper()
	var config admissionregistrationv1.MutatingWebhookConfiguration
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: w.cfg.WebhookConfiguration}, &config))
	return &config
}

// leaf returns the serving certificate in the Secret, or nil.
func (w *world) leaf(t *testing.T) *x509.Certificate {
	t.Helper()
	found, err := cert.ParseCertsPEM(w.secret(t).Data["tls.crt"])
	if err != nil {
		return nil
	}
	return found[0]
}

// replica serves a webhook.
type replica struct {
	*servingcert.Certificate
	port  int32
	calls atomic.Int64
	run   func()
}

// newReplica returns a replica that listens, and maintains its certificate once it runs.
func (w *world) newReplica(t *testing.T) *replica {
	t.Helper()
	return w.newReplicaWith(t, interceptor.Funcs{})
}

// newReplicaWith returns a replica whose writes are intercepted.
func (w *world) newReplicaWith(t *testing.T, funcs interceptor.Funcs) *replica {
	t.Helper()
	c, err := servingcert.New(w.cfg)
	require.NoError(t, err)
	rc, err := clientcmd.BuildConfigFromFlags("", w.user)
	require.NoError(t, err)
	rc.QPS = -1
	mgr, err := manager.New(rc, manager.Options{
		Scheme: scheme.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Cache: cache.Options{ByObject: w.cfg.ByObject()},
		NewClient: func(config *rest.Config, options client.Options) (client.Client, error) {
			options.Cache = nil
			c, err := client.NewWithWatch(config, options)
			if err != nil {
				return nil, err
			}
			return interceptor.NewClient(c, funcs), nil
		},
	})
	require.NoError(t, err)
	require.NoError(t, c.Register(mgr))
	r := &replica{Certificate: c}
	r.port = r.serve(t)
	r.run = func() {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(ctx) }()
		t.Cleanup(func() {
			cancel()
			assert.NoError(t, <-ended)
		})
	}
	return r
}

// start returns running replicas, with a filled Secret and a configuration that leads to them.
func (w *world) start(t *testing.T, replicas int) []*replica {
	t.Helper()
	var all []*replica
	for range replicas {
		all = append(all, w.newReplica(t))
	}
	w.createSecret(t, nil)
	w.createConfiguration(t, all...)
	for _, r := range all {
		r.run()
	}
	w.waitForCalls(t)
	return all
}

// waitForCalls waits until the API server calls every replica and trusts it. Before the API server
// has received the configuration, it allows requests without a call.
func (w *world) waitForCalls(t *testing.T) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		before := make([]int64, len(w.called))
		for i, r := range w.called {
			before[i] = r.calls.Load()
		}
		assert.NoError(c, w.call(t.Context()))
		for i, r := range w.called {
			assert.Greater(c, r.calls.Load(), before[i], "replica %d is not called", i)
		}
	}, longest, tick)
}

// waitUntilServed waits until every replica serves the certificate in the Secret, and this differs
// from before.
func (w *world) waitUntilServed(t *testing.T, before *x509.Certificate, replicas ...*replica) {
	t.Helper()
	require.Eventually(t, func() bool {
		leaf := w.leaf(t)
		if leaf == nil || before != nil && leaf.Equal(before) {
			return false
		}
		for _, r := range replicas {
			if !leaf.Equal(r.leaf()) {
				return false
			}
		}
		return true
	}, longest, tick)
}

// leaf returns the certificate that the replica serves, or nil.
func (r *replica) leaf() *x509.Certificate {
	served, err := r.GetCertificate(nil)
	if err != nil {
		return nil
	}
	return served.Leaf
}

// serve serves a webhook that allows everything, and returns its port. Every call makes a new TLS
// handshake.
func (r *replica) serve(t *testing.T) int32 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(r.agree)}
	server.SetKeepAlivesEnabled(false)
	ended := make(chan error, 1)
	go func() {
		ended <- server.Serve(tls.NewListener(listener, &tls.Config{GetCertificate: r.GetCertificate}))
	}()
	t.Cleanup(func() {
		assert.NoError(t, server.Close())
		assert.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	return int32(listener.Addr().(*net.TCPAddr).Port)
}

func (r *replica) agree(w http.ResponseWriter, req *http.Request) {
	r.calls.Add(1)
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the API server reports an error
}

// authority is a foreign certificate authority.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, validity time.Duration) *authority {
	t.Helper()
	a := &authority{cert: &x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	a.cert, a.key = a.sign(t, a.cert, validity)
	return a
}

func (a *authority) sign(t *testing.T, template *x509.Certificate, validity time.Duration) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	signer := a.key
	if signer == nil {
		signer = key
	}
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<60))
	require.NoError(t, err)
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(validity)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), signer)
	require.NoError(t, err)
	made, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return made, key
}

// issue returns the data of a Secret with a certificate for names.
func (a *authority) issue(t *testing.T, validity time.Duration, names ...string) map[string][]byte {
	t.Helper()
	made, key := a.sign(t, &x509.Certificate{
		DNSNames: names, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, validity)
	data := map[string][]byte{}
	var err error
	data["ca.crt"], err = cert.EncodeCertificates(a.cert)
	require.NoError(t, err)
	data["ca.key"], err = keyutil.MarshalPrivateKeyToPEM(a.key)
	require.NoError(t, err)
	data["tls.crt"], err = cert.EncodeCertificates(made)
	require.NoError(t, err)
	data["tls.key"], err = keyutil.MarshalPrivateKeyToPEM(key)
	require.NoError(t, err)
	return data
}

// names are the names in a certificate for the webhook.
func (w *world) names() []string {
	host := w.cfg.Service + "." + w.cfg.Namespace
	return []string{host + ".svc", host + ".svc.cluster.local", host}
}
