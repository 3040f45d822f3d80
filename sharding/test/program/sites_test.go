package program

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/test/crds"
	"nodekeeper.dev/test/controlplane"
)

// sharderNamespace is the default namespace of the Lease of the leading sharder.
const sharderNamespace = "sharder-system"

// notTheAnchor selects all policies but the one that the sharder never deletes.
var notTheAnchor = client.MatchingFieldsSelector{Selector: fields.OneTermNotEqualSelector(metav1.ObjectNameField, "sharding-anchor")}

// sites holds the API servers for tests with sharders of their own, with the CRDs installed. One
// test at a time uses each.
var sites = controlplane.Pool{New: startSite}

func startSite() (*controlplane.ControlPlane, error) {
	plane, err := controlplane.Start(controlplane.Options{})
	if err != nil {
		return nil, err
	}
	if err := crds.Install(context.Background(), plane.Config); err != nil {
		return nil, errors.Join(err, plane.Stop())
	}
	return plane, nil
}

// newSite returns an API server that the test uses exclusively, with the CRDs installed, no sharder
// and no rings. Namespaces of earlier tests may still exist, with their objects.
func newSite(t *testing.T) *cluster {
	t.Helper()
	plane, err := sites.Take()
	require.NoError(t, err)
	t.Cleanup(func() { // after the test's sharders have ended
		if t.Failed() {
			return // the next test does not get what a failed one has left
		}
		if assert.NoError(t, clearSite(plane)) {
			sites.Give(plane)
		}
	})
	return siteOn(t, plane)
}

// ownSite is like newSite, but no other test uses the API server before or after.
func ownSite(t *testing.T) *cluster {
	t.Helper()
	plane, err := startSite()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plane.Stop()) })
	return siteOn(t, plane)
}

func siteOn(t *testing.T, plane *controlplane.ControlPlane) *cluster {
	t.Helper()
	c := clusterOn(t, plane)
	c.plane = plane
	return c
}

// clearSite deletes the rings, their policies, fences, webhooks and tables, and the Lease of the
// leader from an API server without a sharder.
func clearSite(plane *controlplane.ControlPlane) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := client.New(plane.Config, client.Options{})
	if err != nil {
		return fmt.Errorf("connecting to the site: %w", err)
	}
	if err := c.DeleteAllOf(ctx, &v1alpha1.ClusterRing{}); err != nil {
		return fmt.Errorf("deleting all rings: %w", err)
	}
	all := &v1alpha1.ClusterRingList{}
	if err := c.List(ctx, all); err != nil {
		return fmt.Errorf("listing the rings that remain: %w", err)
	}
	for i := range all.Items {
		ring := &all.Items[i]
		ring.Finalizers = nil // no sharder is running to do it
		// After a test of cost on a busy machine, the API server may not answer within a minute.
		finalize := func() error { return client.IgnoreNotFound(c.Update(ctx, ring)) }
		if err := retry.OnError(wait.Backoff{Steps: 5, Duration: time.Second}, apierrors.IsTimeout, finalize); err != nil {
			return fmt.Errorf("finalizing ring %s: %w", ring.Name, err)
		}
	}
	for _, policies := range []client.Object{
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{}, &admissionregistrationv1.MutatingAdmissionPolicy{},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicy{},
	} {
		if err := c.DeleteAllOf(ctx, policies, notTheAnchor); err != nil && !meta.IsNoMatchError(err) { // older API servers have none
			return err
		}
	}
	return errors.Join(
		c.DeleteAllOf(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{}),
		c.DeleteAllOf(ctx, &coordinationv1.Lease{}, client.InNamespace(sharderNamespace)),
		c.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(sharderNamespace)),
		c.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(sharderNamespace)),
	)
}
