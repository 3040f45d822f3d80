// Package webhooks makes the API server of a test call a webhook that runs as a process on this
// machine.
package webhooks

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/ports"
)

// Site describes where a webhook runs, and for which Nodes it is called. Its objects are those of
// deploy/components/admission, except that the Service leads to this machine.
type Site struct {
	// Namespace is the namespace of the Secret and the Service. It is created if it is missing.
	Namespace string
	// Name is the name of the MutatingWebhookConfiguration.
	Name string
	// Prefix is the prefix of the names of the Nodes that the webhook is called for; "" means all.
	Prefix string
	// Twice makes the API server call the webhook twice for each Node, as it may if another webhook
	// has changed the Node.
	Twice bool
	// TimeoutSeconds is the time for which the API server waits for an answer. Zero means one second,
	// as in the manifests. On a machine that stalls for longer, the API server continues without an
	// answer.
	TimeoutSeconds int32

	port int32
}

// Install creates the objects, and chooses a free port.
func (s *Site) Install(ctx context.Context, c client.Client) error {
	port, err := ports.Free()
	if err != nil {
		return err //nolint:wrapcheck // the error already names the failed part
	}
	s.port = int32(port)
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "webhook-certificate"}},
		// The API server resolves the Service itself, and verifies the certificate for it.
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "webhook"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
		},
		s.Configuration(),
	} {
		if err := c.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating %s: %w", object.GetName(), err)
		}
	}
	return nil
}

// Address is the address at which the API server calls the webhook.
func (s *Site) Address() string { return "127.0.0.1:" + strconv.Itoa(int(s.port)) }

// Flags returns the flags of a webhook at this site.
func (s *Site) Flags() []string {
	return []string{
		"--webhook-bind-address=" + s.Address(), "--service-namespace=" + s.Namespace, "--webhook-configuration=" + s.Name,
	}
}

// Configuration returns the installed configuration.
func (s *Site) Configuration() *admissionregistrationv1.MutatingWebhookConfiguration {
	all := []admissionregistrationv1.MutatingWebhook{s.webhook("nodes.nodekeeper.dev")}
	if s.Twice {
		all = append(all, s.webhook("again.nodekeeper.dev"))
	}
	return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Webhooks: all}
}

func (s *Site) webhook(name string) admissionregistrationv1.MutatingWebhook {
	return admissionregistrationv1.MutatingWebhook{
		Name: name,
		ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
			Namespace: s.Namespace, Name: "webhook", Path: new("/nodes"), Port: &s.port,
		}},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
		}},
		MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "prefix", Expression: fmt.Sprintf("object.metadata.name.startsWith(%q)", s.Prefix)}},
		FailurePolicy:           new(admissionregistrationv1.Ignore),
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          new(cmp.Or(s.TimeoutSeconds, 1)),
		AdmissionReviewVersions: []string{"v1"},
	}
}

// Forget removes the record that [Site.Answers] made.
func (s *Site) Forget(ctx context.Context, c client.Client, metadataNamespace string) error {
	saved := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metadataNamespace, Name: s.Prefix + "webhook-probe"}}
	if err := client.IgnoreNotFound(c.Delete(ctx, saved)); err != nil {
		return fmt.Errorf("deleting record %s: %w", saved.Name, err)
	}
	return nil
}

// Answers reports whether the API server calls a webhook that answers from the records of a
// namespace. It creates the record of a node that does not exist, whose name begins with the
// prefix, and requests the webhook's answer by a dry run.
func (s *Site) Answers(ctx context.Context, c client.Client, metadataNamespace string) (bool, error) {
	name := s.Prefix + "webhook-probe"
	saved := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metadataNamespace, Name: name}, Data: map[string]string{"labels_restored": "1", "probed": "yes"}}
	if err := c.Create(ctx, saved); err != nil && !apierrors.IsAlreadyExists(err) {
		return false, fmt.Errorf("creating the record of node %s: %w", name, err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Create(ctx, n, client.DryRunAll); err != nil {
		return false, fmt.Errorf("asking about node %s: %w", name, err)
	}
	return n.Labels["probed"] == "yes", nil
}
