package deploy_test

import (
	"bytes"
	"context"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/test/ports"
	"nodekeeper.dev/test/programs"
)

// freePort returns an unused port of the loopback.
func freePort(t *testing.T) int {
	t.Helper()
	port, err := ports.Free()
	require.NoError(t, err)
	return port
}

func secret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "webhook-certificate"}}
}

func configuration() *admissionv1.MutatingWebhookConfiguration {
	return &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "nodekeeper"}}
}

// webhook starts a webhook of the manifests and waits until the API server calls it. Services and
// pods have no addresses here, so their names resolve to this machine.
func (s *story) webhook() {
	s.t.Helper()
	port := freePort(s.t)
	config := all[admissionv1.MutatingWebhookConfiguration](s.t, s.variant.render(s.t), "MutatingWebhookConfiguration")[0]
	config.Webhooks[0].ClientConfig.Service.Port = new(int32(port))
	config.Webhooks[0].TimeoutSeconds = new(int32(30)) // a busy machine may take longer than the second of the manifests, and then the Node is created without an answer
	here := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "webhook"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	if s.with(withCertManager) {
		s.certify(&config)
	}
	s.t.Cleanup(func() {
		for _, obj := range []client.Object{configuration(), here, secret()} {
			assert.NoError(s.t, client.IgnoreNotFound(s.client.Delete(context.WithoutCancel(s.t.Context()), obj)))
		}
	})
	require.NoError(s.t, s.client.Create(s.t.Context(), here))
	require.NoError(s.t, s.client.Create(s.t.Context(), &config))
	s.start("webhook", "--webhook-bind-address=127.0.0.1:"+strconv.Itoa(port))
	probe := aRecord("probe-" + rand.String(5))
	require.NoError(s.t, s.client.Create(s.t.Context(), probe))
	s.eventually(func(c *assert.CollectT) {
		node := nodeNamed(probe.Name)
		require.NoError(c, s.client.Create(s.t.Context(), node, client.DryRunAll))
		assert.True(c, node.Labels["rack"] == "r7" || slices.ContainsFunc(node.Spec.Taints, nodeview.IsStartupTaint))
	}, "the API server asks the webhook")
}

// certify acts as cert-manager: it issues the certificate, and makes the API server trust it.
func (s *story) certify(config *admissionv1.MutatingWebhookConfiguration) {
	s.t.Helper()
	require.Equal(s.t, systemNamespace+"/webhook", config.Annotations["cert-manager.io/inject-ca-from"])
	pair, key, err := cert.GenerateSelfSignedCertKey("webhook.nodekeeper-system.svc", nil, nil)
	require.NoError(s.t, err)
	made := secret()
	made.Type, made.Data = corev1.SecretTypeTLS, map[string][]byte{corev1.TLSCertKey: pair, corev1.TLSPrivateKeyKey: key}
	require.NoError(s.t, s.client.Create(s.t.Context(), made))
	config.Webhooks[0].ClientConfig.CABundle = pair
}

// TestWebhookRestoresInTheRequest runs in a cluster with the webhook's manifests.
func TestWebhookRestoresInTheRequest(t *testing.T) {
	t.Parallel()
	for _, components := range [][]string{{withAdmission}, {withAdmission, withGate}} {
		v := variant{base, components}
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			s := newStory(t, v)
			s.start("watcher")
			s.start("processor", "--save-delay=0")
			s.webhook()
			name, labels := "restored-"+rand.String(5), set{"rack": "r7"}
			s.create(name, labels)
			s.saved(name, labels)
			s.delete(name)
			node := nodeNamed(name)
			require.NoError(t, s.client.Create(t.Context(), node))
			gated := slices.ContainsFunc(node.Spec.Taints, nodeview.IsStartupTaint)
			assert.True(t, gated || node.Labels["rack"] == "r7", "no scheduler sees it without its labels")
			if s.with(withGate) {
				assert.True(t, gated)
			}
			s.restored(name, labels)
			s.opened(name)
		})
	}
}

// opened waits until a Node has no startup taint.
func (s *story) opened(name string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		node := nodeNamed(name)
		require.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(node), node))
		assert.False(c, slices.ContainsFunc(node.Spec.Taints, nodeview.IsStartupTaint))
		assert.NotEqual(c, "pending", node.Labels["labels_restored"])
	}, "the startup taint of "+name+" is removed")
}

// TestApplyingAgainKeepsTheCertificate also checks the caBundle, which the webhooks wrote.
func TestApplyingAgainKeepsTheCertificate(t *testing.T) {
	c := newCluster(t, rest.NoWarnings{})
	install(t, c)
	var manifests []byte
	for _, obj := range (variant{base, []string{withAdmission}}).render(t) {
		if obj.GetKind() == "Secret" || obj.GetKind() == "MutatingWebhookConfiguration" {
			content, err := yaml.Marshal(obj)
			require.NoError(t, err)
			manifests = append(append(manifests, "---\n"...), content...)
		}
	}
	bundle, _, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	require.NoError(t, err)
	for name, flags := range map[string][]string{"kubectl apply": nil, "kubectl apply --server-side": {"--server-side"}} {
		t.Run(name, func(t *testing.T) {
			kubectlApply(t, c, manifests, flags...)
			data, trust := secret(), configuration()
			t.Cleanup(func() {
				ctx := context.WithoutCancel(t.Context())
				assert.NoError(t, c.Delete(ctx, trust))
				assert.NoError(t, c.Delete(ctx, data))
			})
			require.NoError(t, c.Patch(t.Context(), data, merge(`{"data":{"tls.key":"a2V5"}}`)))
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(trust), trust))
			trust.Webhooks[0].ClientConfig.CABundle = bundle
			require.NoError(t, c.Update(t.Context(), trust))
			kubectlApply(t, c, manifests, flags...)
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(data), data))
			assert.Equal(t, map[string][]byte{"tls.key": []byte("key")}, data.Data)
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(trust), trust))
			assert.Equal(t, bundle, trust.Webhooks[0].ClientConfig.CABundle)
		})
	}
}

func kubectlApply(t *testing.T, c *cluster, manifests []byte, flags ...string) {
	t.Helper()
	args := slices.Concat([]string{"--kubeconfig=" + c.plane.Kubeconfig, "apply", "-f", "-"}, flags)
	cmd := exec.CommandContext(t.Context(), "kubectl", args...)
	cmd.Stdin = bytes.NewReader(manifests)
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
}

// With the Leases of other programs it could disturb their assignment of nodes.
func TestWebhookWritesOnlyItsOwnLeases(t *testing.T) {
	t.Parallel()
	s := newStory(t, variant{base, []string{withAdmission}})
	lease := func(service string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: systemNamespace, Name: service + "-" + rand.String(5), Labels: map[string]string{ring.Label: service},
		}}
	}
	webhook := accountOf(t, s.client, "webhook")
	forged, own := lease("processor"), lease("webhook")
	s.eventually(func(c *assert.CollectT) {
		assert.ErrorContains(c, webhook.Create(t.Context(), forged.DeepCopy(), client.DryRunAll), "only Leases with the label nodekeeper.dev/ring: webhook")
	}, "the policy is in force")
	require.NoError(t, s.client.Create(t.Context(), forged))
	require.ErrorContains(t, webhook.Delete(t.Context(), forged.DeepCopy()), "change and delete only")
	stolen := forged.DeepCopy()
	stolen.Labels[ring.Label] = "webhook"
	require.ErrorContains(t, webhook.Update(t.Context(), stolen), "change and delete only")
	require.NoError(t, webhook.Create(t.Context(), own))
	left := own.DeepCopy()
	left.Labels = nil
	require.ErrorContains(t, webhook.Update(t.Context(), left), "write only")
	require.NoError(t, webhook.Update(t.Context(), own))
	require.NoError(t, webhook.Delete(t.Context(), own))
}

// TestWebhookNamesEveryRightThatItLacks checks the errors at its start for each right in the
// manifests.
func TestWebhookNamesEveryRightThatItLacks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, rest.NoWarnings{})
	install(t, c)
	for _, v := range []variant{{base, []string{withAdmission}}, {base, []string{withAdmission, withCertManager}}} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			kubeconfig, err := c.plane.KubeconfigFor("nobody-" + rand.String(5))
			require.NoError(t, err)
			p, err := programs.Start("webhook", "webhook-1", kubeconfig, "--rotate-certificate="+strconv.FormatBool(len(v.components) == 1))
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, p.Kill()) })
			select {
			case <-p.Done():
			case <-time.After(patience):
				require.Fail(t, "it does not end", p.Output())
			}
			_, lacks, ok := strings.Cut(p.Output(), "webhook: this identity may not ")
			require.True(t, ok, p.Output())
			lacks, _, _ = strings.Cut(lacks, ": ")
			var want []string
			for one := range granted(t, v.render(t)) {
				if one.Account == "webhook" {
					want = append(want, asLacking(one))
				}
			}
			assert.ElementsMatch(t, want, strings.Split(lacks, ", nor "))
		})
	}
}

// asLacking returns the description of a right that a program reports if it lacks it.
func asLacking(r right) string {
	text := r.Verb + " " + r.Resource
	switch r.Resource {
	case "secrets":
		text += "/webhook-certificate"
	case webhookConfigurations:
		text += "/nodekeeper"
	}
	if r.Namespace != "" {
		text += " in namespace " + r.Namespace
	}
	return text
}

// kustomize would silently omit patches without a target.
func TestComponentsOfTheWebhookNeedIt(t *testing.T) {
	t.Parallel()
	for _, component := range []string{withGate, withCertManager} {
		assert.Error(t, renders(t, base, component), "alone")
		assert.Error(t, renders(t, base, component, withAdmission), "in the wrong order")
		assert.NoError(t, renders(t, base, withAdmission, component))
		assert.NoError(t, renders(t, ha, component))
	}
}

// The names that the API server and the certificate use must match.
func TestWebhookIsReached(t *testing.T) {
	t.Parallel()
	objects := variant{base, []string{withAdmission, withCertManager}}.render(t)
	reached := all[admissionv1.MutatingWebhookConfiguration](t, objects, "MutatingWebhookConfiguration")[0].Webhooks[0].ClientConfig.Service
	service := all[corev1.Service](t, objects, "Service")[0]
	assert.Equal(t, service.Namespace+"/"+service.Name, reached.Namespace+"/"+reached.Name)
	assert.Equal(t, service.Spec.Ports[0].Port, *reached.Port)
	assert.Equal(t, "/nodes", *reached.Path)
	assert.Equal(t, "webhook", service.Spec.Ports[0].TargetPort.StrVal)
	for _, obj := range objects {
		switch {
		case obj.GetKind() == "Secret":
			assert.Fail(t, "cert-manager makes the Secret")
		case obj.GetKind() == "Certificate" && obj.GetName() == "webhook":
			spec, _ := obj.Object["spec"].(map[string]any)
			assert.Equal(t, secret().Name, spec["secretName"])
			assert.Equal(t, []any{reached.Name + "." + reached.Namespace + ".svc"}, spec["dnsNames"])
		}
	}
}
