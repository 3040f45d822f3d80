package servingcert

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// Check returns an error unless the Secret exists and the webhook configuration sends requests to
// the Service. The error has one line, and includes the remedy. A configuration that is missing or
// empty is only logged, since deleting it is the first step of turning the webhook off. Without
// Rotate, Check reads only the Secret.
func (cfg Config) Check(ctx context.Context, c client.Client) error {
	err := c.Get(ctx, client.ObjectKey{Namespace: cfg.Namespace, Name: cfg.Secret}, &corev1.Secret{})
	switch {
	case apierrors.IsNotFound(err) && cfg.Rotate:
		return fmt.Errorf("there is no Secret %s/%s for the serving certificate: run kubectl create secret generic %s -n %s, which is filled then, or name another by --certificate-secret",
			cfg.Namespace, cfg.Secret, cfg.Secret, cfg.Namespace)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no Secret %s/%s with the serving certificate: check the Certificate of cert-manager that makes it, name another by --certificate-secret, or set --rotate-certificate",
			cfg.Namespace, cfg.Secret)
	case err != nil:
		return fmt.Errorf("reading Secret %s/%s: %w", cfg.Namespace, cfg.Secret, err)
	}
	if !cfg.Rotate {
		return nil
	}
	var found admissionregistrationv1.MutatingWebhookConfiguration
	err = c.Get(ctx, client.ObjectKey{Name: cfg.WebhookConfiguration}, &found)
	switch {
	case apierrors.IsNotFound(err), err == nil && len(found.Webhooks) == 0:
		logf.FromContext(ctx).Info("No webhook is configured: apply deploy/components/admission to turn it on",
			"mutatingWebhookConfiguration", cfg.WebhookConfiguration)
		return nil
	case err != nil:
		return fmt.Errorf("reading MutatingWebhookConfiguration %s: %w", cfg.WebhookConfiguration, err)
	case slices.ContainsFunc(found.Webhooks, cfg.mayReachService):
		return nil
	}
	return fmt.Errorf("MutatingWebhookConfiguration %s does not send requests to Service %s/%s: correct its clientConfig.service, or --service-namespace, --service or --webhook-configuration",
		cfg.WebhookConfiguration, cfg.Namespace, cfg.Service)
}

// mayReachService reports whether a webhook of the configuration leads to the Service. A webhook with a URL
// may lead to it: the URL does not show which server answers.
func (cfg Config) mayReachService(w admissionregistrationv1.MutatingWebhook) bool {
	to := w.ClientConfig.Service
	return w.ClientConfig.URL != nil || to != nil && to.Namespace == cfg.Namespace && to.Name == cfg.Service
}
