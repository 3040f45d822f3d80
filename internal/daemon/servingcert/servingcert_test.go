package servingcert_test

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nodekeeper.dev/internal/daemon/servingcert"
	"nodekeeper.dev/test/metrics"
)

const (
	expiryMetric = "nodekeeper_webhook_certificate_expiry_timestamp_seconds"
	day          = 24 * time.Hour
	year         = 365 * day
)

// assertSteady checks that the Secret and the configuration are in the state between two rotations.
func (w *world) assertSteady(t *testing.T, authorities int) {
	t.Helper()
	data := w.secret(t).Data
	cas, err := cert.ParseCertsPEM(data["ca.crt"])
	require.NoError(t, err)
	assert.Len(t, cas, authorities)
	leaf := w.leaf(t)
	require.NoError(t, leaf.CheckSignatureFrom(cas[0]), "the newest authority signs")
	assert.Equal(t, w.names(), leaf.DNSNames)
	assert.Greater(t, time.Until(leaf.NotAfter), 80*day)
	for _, hook := range w.configuration(t).Webhooks {
		assert.Equal(t, string(data["ca.crt"]), string(hook.ClientConfig.CABundle), hook.Name)
	}
}

func TestAnEmptySecretIsFilledAndTheAPIServerTrustsIt(t *testing.T) {
	t.Parallel()
	for name, secret := range map[string]corev1.Secret{
		"opaque": {},
		"tls":    {Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": {}, "tls.key": {}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			r := w.newReplica(t)
			registry := prometheus.NewPedanticRegistry()
			require.NoError(t, registry.Register(r))
			require.ErrorContains(t, r.Ready(nil), "there is no serving certificate yet")
			assert.True(t, r.Expires().IsZero())
			samples, err := metrics.Gather(registry)
			require.NoError(t, err)
			assert.Contains(t, samples, expiryMetric)
			assert.Zero(t, samples[expiryMetric])

			secret.ObjectMeta = w.meta(w.cfg.Secret)
			w.create(t, &secret)
			w.createConfiguration(t, r)
			require.Eventually(t, func() bool { return w.call(t.Context()) != nil }, longest, tick, "the API server calls an untrusted webhook")
			r.run()
			w.waitForCalls(t)
			w.assertSteady(t, 1)
			require.NoError(t, r.Ready(nil))
			assert.Equal(t, w.leaf(t).NotAfter, r.Expires())
			samples, err = metrics.Gather(registry)
			require.NoError(t, err)
			assert.InDelta(t, float64(r.Expires().Unix()), samples[expiryMetric], 0)
		})
	}
}

func TestReplicasThatStartTogetherConverge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	all := w.start(t, 3)
	w.waitUntilServed(t, nil, all...)
	w.assertSteady(t, 1)
	w.waitForCalls(t)
}

// Between the read and the write, another client fills the Secret.
func TestAReplicaDoesNotReplaceWhatAnotherHasJustWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	other := newAuthority(t, 10*year).issue(t, 80*day, w.names()...)
	var once sync.Once
	lost := make(chan error, 1)
	r := w.newReplicaWith(t, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			first := false
			once.Do(func() {
				s := &corev1.Secret{ObjectMeta: w.meta(w.cfg.Secret), Data: other}
				first = assert.NoError(t, w.Update(ctx, s))
			})
			err := c.Patch(ctx, obj, patch, opts...)
			if first {
				lost <- err
			}
			return err
		},
	})
	w.createSecret(t, nil)
	w.createConfiguration(t, r)
	r.run()
	require.True(t, apierrors.IsConflict(<-lost))
	w.waitForCalls(t)
	assert.Equal(t, other, w.secret(t).Data)
}

func TestACertificateAboutToExpireIsReplacedWithoutAFailedCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	ca := newAuthority(t, 10*year)
	all := []*replica{w.newReplica(t), w.newReplica(t)}
	w.createSecret(t, ca.issue(t, 80*day, w.names()...))
	w.createConfiguration(t, all...)
	for _, r := range all {
		r.run()
	}
	w.waitForCalls(t)
	stop := w.keepCalling(t)
	first := w.leaf(t)

	data := ca.issue(t, 25*day, w.names()...)
	short, err := cert.ParseCertsPEM(data["tls.crt"])
	require.NoError(t, err)
	w.setData(t, data)
	require.Eventually(t, func() bool { leaf := w.leaf(t); return !leaf.Equal(first) && !leaf.Equal(short[0]) }, longest, tick)
	w.waitUntilServed(t, first, all...)
	stop()
	w.assertSteady(t, 1)
	assert.Equal(t, ca.issue(t, day)["ca.crt"], w.secret(t).Data["ca.crt"], "the authority is the same")
}

// In each of these cases the authority is replaced, and replicas continue to serve the previous
// certificate until the API server trusts the new one.
func TestAnAuthorityIsReplacedWithoutAFailedCall(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, data map[string][]byte) map[string][]byte{
		"the data is deleted": func(*testing.T, map[string][]byte) map[string][]byte { return nil },
		"all data is garbage": func(*testing.T, map[string][]byte) map[string][]byte {
			garbage := []byte("-----BEGIN CERTIFICATE-----\nZ2FyYmFnZQ==\n-----END CERTIFICATE-----\n")
			return map[string][]byte{"ca.crt": garbage, "ca.key": garbage, "tls.crt": garbage, "tls.key": garbage}
		},
		"its key is lost": func(_ *testing.T, data map[string][]byte) map[string][]byte {
			delete(data, "ca.key")
			return data
		},
		"its key is another's": func(t *testing.T, data map[string][]byte) map[string][]byte {
			t.Helper()
			data["ca.key"] = newAuthority(t, year).issue(t, day)["ca.key"]
			return data
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, true)
			all := w.start(t, 2)
			w.waitUntilServed(t, nil, all...)
			before, old := w.leaf(t), w.configuration(t).Webhooks[0].ClientConfig.CABundle
			stop := w.keepCalling(t)
			w.setData(t, spoil(t, w.secret(t).Data))
			w.waitUntilServed(t, before, all...)
			stop()
			w.assertSteady(t, 2)
			assert.Contains(t, string(w.secret(t).Data["ca.crt"]), string(old), "the authority of before is still trusted")
		})
	}
}

func TestAnAuthorityAboutToExpireIsReplacedWithoutAFailedCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	ca := newAuthority(t, 100*day)
	all := []*replica{w.newReplica(t), w.newReplica(t)}
	w.createSecret(t, ca.issue(t, 80*day, w.names()...))
	w.createConfiguration(t, all...)
	config := w.configuration(t)
	for i := range config.Webhooks {
		config.Webhooks[i].ClientConfig.CABundle = w.secret(t).Data["ca.crt"]
	}
	require.NoError(t, w.Update(t.Context(), config))
	before := w.leaf(t)
	for _, r := range all {
		r.run()
	}
	w.waitForCalls(t)
	stop := w.keepCalling(t)
	w.waitUntilServed(t, before, all...)
	stop()
	w.assertSteady(t, 2)
}

func TestAWipedCABundleIsMended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	all := w.start(t, 2)
	w.waitUntilServed(t, nil, all...)
	before := w.leaf(t)
	for _, bundle := range [][]byte{nil, []byte("\n"), newAuthority(t, year).issue(t, day)["ca.crt"]} {
		config := w.configuration(t)
		config.Webhooks[1].ClientConfig.CABundle = bundle
		require.NoError(t, w.Update(t.Context(), config))
		require.Eventually(t, func() bool {
			hooks := w.configuration(t).Webhooks
			return string(hooks[1].ClientConfig.CABundle) == string(hooks[0].ClientConfig.CABundle)
		}, longest, tick)
		w.waitForCalls(t)
	}
	w.assertSteady(t, 1)
	assert.True(t, before.Equal(w.leaf(t)), "the certificate was replaced")
}

func TestWhatIsMissingIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	r := w.newReplica(t)
	r.run()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.ErrorContains(c, r.Ready(nil), `secrets "webhook-certificate" not found`)
	}, longest, tick)
	w.createSecret(t, nil)
	w.waitUntilServed(t, nil, r)
	require.NoError(t, r.Ready(nil), "the certificate does not wait for the configuration")
	w.createConfiguration(t, r)
	w.waitForCalls(t)
	w.assertSteady(t, 1)
}

func TestWithoutRotationItOnlyReads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, false)
	ca := newAuthority(t, year)
	r := w.newReplica(t)
	garbage := map[string][]byte{"tls.crt": []byte("garbage"), "tls.key": []byte("garbage")}
	w.createSecret(t, garbage)
	r.run()
	unready := func(reason string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) { assert.ErrorContains(c, r.Ready(nil), reason) }, longest, tick)
	}
	unready("reading the certificate in Secret " + w.cfg.Namespace + "/webhook-certificate: tls.crt and tls.key: tls: failed to find any PEM data")
	w.setData(t, ca.issue(t, 25*day, "somebody.else.svc"))
	unready("certificate is valid for somebody.else.svc, not webhook." + w.cfg.Namespace + ".svc")
	w.setData(t, nil)
	unready("it has no tls.crt")

	w.setData(t, ca.issue(t, 25*day, w.names()[0]))
	w.waitUntilServed(t, nil, r)
	require.NoError(t, r.Ready(nil))
	first := w.leaf(t)
	w.setData(t, ca.issue(t, 23*time.Hour, w.names()[0]))
	w.waitUntilServed(t, first, r)
	require.ErrorContains(t, r.Ready(nil), "about to expire")
	last := r.leaf()
	w.setData(t, garbage)
	unready("failed to find any PEM data")
	require.ErrorContains(t, r.Ready(nil), "about to expire")
	assert.True(t, last.Equal(r.leaf()), "the certificate of before is no longer served")
	assert.Equal(t, garbage, w.secret(t).Data)
}

func TestNewNeedsToKnowTheObjects(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]servingcert.Config{
		"no namespace":     {Secret: "s"},
		"no Secret":        {Namespace: "n"},
		"no configuration": {Namespace: "n", Secret: "s", Service: "w", Rotate: true},
		"no Service":       {Namespace: "n", Secret: "s", WebhookConfiguration: "w", Rotate: true},
	} {
		_, err := servingcert.New(cfg)
		assert.Error(t, err, name)
	}
	_, err := servingcert.New(servingcert.Config{Namespace: "n", Secret: "s"})
	assert.NoError(t, err)
}

// A webhook can have any number of configurations, and be called by an address.
func TestSelectedConfigurationsTrustTheCertificateOfAnAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, true)
	name := w.cfg.WebhookConfiguration
	w.cfg.Host = "127.0.0.1"
	w.cfg.Selects = func(c *admissionregistrationv1.MutatingWebhookConfiguration) bool {
		return strings.HasPrefix(c.Name, name+"-")
	}
	w.create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name + "-all"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{admissionregistrationv1.GroupName}, Resources: []string{"mutatingwebhookconfigurations"}, Verbs: []string{"list", "watch", "patch"},
	}}})
	w.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-all"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name + "-all"},
	})
	w.createSecret(t, nil)
	r := w.newReplica(t)
	r.run()
	w.waitUntilServed(t, nil, r)
	assert.Equal(t, w.secret(t).Data["ca.crt"], r.Bundle())
	assert.NoError(t, r.leaf().VerifyHostname("127.0.0.1"))
	for _, suffix := range []string{"-a", "-b", ""} {
		w.cfg.WebhookConfiguration = name + suffix
		w.createConfiguration(t, r)
		if suffix == "" {
			continue
		}
		require.Eventually(t, func() bool { return bytes.Equal(r.Bundle(), w.configuration(t).Webhooks[0].ClientConfig.CABundle) }, longest, tick, suffix)
	}
	assert.Empty(t, w.configuration(t).Webhooks[0].ClientConfig.CABundle, "this one is not selected")
}
