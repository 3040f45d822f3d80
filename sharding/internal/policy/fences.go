package policy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
	"nodekeeper.dev/sharding/internal/ring"
)

// fenceUnsupported is a reason of the condition [place.FenceInstalled].
const fenceUnsupported = "FenceUnsupported"

// fenceSettle is how long a fence must have been applied before it counts as installed: API servers
// that did not answer the dry run may load it a little later.
const fenceSettle = 3 * time.Second

// keepFences installs or removes the validating policies of a ring, and reports the result. It returns
// the delay before the next check, or zero if no check is needed.
func (c *Controller) keepFences(ctx context.Context, r *v1alpha1.ClusterRing, resources []Resource) (after time.Duration, err error) {
	if why := unfenced(r); why != "" {
		if err := c.removeFences(ctx, r.Name); err != nil {
			return 0, err
		}
		c.reportFence(r, metav1.ConditionTrue, disabled, why)
		return 0, nil
	}
	if why := c.unsupported(); why != "" {
		if err := c.removeFences(ctx, r.Name); err != nil {
			return 0, err
		}
		c.reportFence(r, metav1.ConditionFalse, fenceUnsupported, why)
		return 0, nil
	}
	fences, err := c.fencesOf(ctx, r, resources)
	if err != nil {
		return 0, err
	}
	waiting, since := "", time.Now()
	for _, f := range fences {
		written, err := c.installFence(ctx, r.Name, f)
		if err != nil {
			return c.failFence(r, err)
		}
		if written {
			logf.FromContext(ctx).Info("Installed a fence", "ring", r.Name, "policy", f.Policy.Name, "fence", r.Spec.Fence)
		}
		p := c.proofOfFence(r, f, written)
		if why := c.proveFence(ctx, r, f, p); why != "" {
			waiting, since = why, p.since
		}
	}
	switch {
	case waiting != "" && time.Since(since) >= unprobed:
		c.reportFence(r, metav1.ConditionFalse, fenceUnsupported, waiting+"; its admission plugin ValidatingAdmissionPolicy may be disabled")
		return failingPeriod, nil
	case waiting != "":
		c.reportFence(r, metav1.ConditionFalse, installing, waiting)
		return probePeriod, nil
	}
	c.reportFence(r, metav1.ConditionTrue, place.FenceWorks, effects[r.Spec.Fence])
	if r.Spec.Fence == v1alpha1.FenceDeny {
		return servingPeriod, nil
	}
	return 0, nil
}

// effects are the messages about fences that work.
var effects = map[v1alpha1.Fence]string{
	v1alpha1.FenceAudit: "the API server records requests of shards for the objects of other shards in its audit log and its metrics",
	v1alpha1.FenceDeny:  "a dry run shows that the API server refuses requests of shards for the objects of other shards",
}

// unfenced returns why a ring asks for no fence, or "" if it does.
func unfenced(r *v1alpha1.ClusterRing) string {
	switch {
	case r.Spec.Fence != v1alpha1.FenceAudit && r.Spec.Fence != v1alpha1.FenceDeny:
		return "the ring has fence None"
	case len(r.Spec.Shards.ServiceAccounts) == 0:
		return "without shards.serviceAccounts, the API server cannot recognize shards"
	case len(fenced(r)) == 0:
		return "no resource of the ring can have a fence"
	}
	return ""
}

// unsupported returns why this process can install no fence, or "" if it can.
func (c *Controller) unsupported() string {
	switch {
	case c.Mode == None:
		return "the sharder runs without admission"
	case !c.Fences:
		return "the API server does not serve validatingadmissionpolicies of admissionregistration.k8s.io/v1: use Kubernetes 1.30 or newer"
	}
	return ""
}

// fencesOf returns the fences of a ring.
func (c *Controller) fencesOf(ctx context.Context, r *v1alpha1.ClusterRing, resources []Resource) ([]Fence, error) {
	user, err := c.self(ctx)
	if err != nil {
		return nil, err
	}
	b := &Builder{Prefix: c.Dialect.PrefixOf(r), Namespace: c.Namespace, Sharders: []string{user}}
	return b.BuildFences(r, resources), nil
}

// installFence creates or updates a fence. It reports whether it wrote anything.
func (c *Controller) installFence(ctx context.Context, name string, f Fence) (written bool, err error) {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	err = c.Client.Get(ctx, client.ObjectKeyFromObject(f.Policy), policy)
	same := err == nil && equality.Semantic.DeepEqual(policy.Spec, f.Policy.Spec)
	wrotePolicy, err := c.ensure(ctx, name, f.Policy, policy, same, err)
	if err != nil {
		return true, fmt.Errorf("installing ValidatingAdmissionPolicy %s: %w", f.Policy.Name, err)
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	err = c.Client.Get(ctx, client.ObjectKeyFromObject(f.Binding), binding)
	same = err == nil && equality.Semantic.DeepEqual(binding.Spec, f.Binding.Spec)
	wroteBinding, err := c.ensure(ctx, name, f.Binding, binding, same, err)
	if err != nil {
		return true, fmt.Errorf("installing ValidatingAdmissionPolicyBinding %s: %w", f.Binding.Name, err)
	}
	return wrotePolicy || wroteBinding, nil
}

// removeFences deletes the fences of a ring, each binding before its policy.
func (c *Controller) removeFences(ctx context.Context, of string) error {
	for _, name := range fenceNames(of) {
		c.forgetFence(name)
		for _, o := range []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicy{}} {
			if err := c.delete(ctx, of, types.NamespacedName{Name: name}, o); err != nil {
				return fmt.Errorf("deleting %T %s: %w", o, name, err)
			}
		}
	}
	return nil
}

// proveFence checks whether the API server applies a fence, and returns why it does not count as
// installed, or "". Nothing shows whether the API server applies a fence that only records.
func (c *Controller) proveFence(ctx context.Context, r *v1alpha1.ClusterRing, f Fence, p *proof) string {
	if r.Spec.Fence != v1alpha1.FenceDeny {
		return ""
	}
	refused, err := c.refuses(ctx, r, f)
	wasApplied := p.applied
	p.applied = refused && time.Since(p.since) >= fenceSettle
	switch {
	case p.applied:
		return ""
	case refused:
		return "other API servers may not apply " + f.Policy.Name + " yet"
	case err == nil:
		return "a dry run does not show that the API server applies " + f.Policy.Name
	case !isTransient(err):
		return fmt.Sprintf("no dry run can show whether the API server applies %s: %v", f.Policy.Name, err)
	case wasApplied: // the next dry run will show it
		p.applied = true
		return ""
	}
	return fmt.Sprintf("could not determine whether the API server applies %s: %v", f.Policy.Name, err)
}

// Fenced reports, by a dry run, whether the API server refuses requests of the shards of a ring for the
// objects of other shards now.
func (c *Controller) Fenced(ctx context.Context, r *v1alpha1.ClusterRing) (bool, error) {
	if unfenced(r) != "" || c.unsupported() != "" || r.Spec.Fence != v1alpha1.FenceDeny {
		return false, nil
	}
	fences, err := c.fencesOf(ctx, r, nil)
	if err != nil {
		return false, err
	}
	refused, err := c.refuses(ctx, r, fences[0])
	if err != nil {
		return false, fmt.Errorf("checking whether the API server applies %s: %w", fences[0].Policy.Name, err)
	}
	return refused, nil
}

// refuses reports whether the API server applies a fence with the action Deny, by a dry run.
func (c *Controller) refuses(ctx context.Context, r *v1alpha1.ClusterRing, f Fence) (bool, error) {
	label := c.Dialect.PrefixOf(r).DrainLabel(r.Name)
	probe := &v1alpha1.ClusterRing{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Labels: map[string]string{label: f.Revision}},
		Spec:       *r.Spec.DeepCopy(),
	}
	err := c.Client.Create(ctx, probe, client.DryRunAll)
	if err != nil && strings.Contains(err.Error(), f.Policy.Name) && strings.Contains(err.Error(), f.Revision) {
		return true, nil
	}
	return false, err //nolint:wrapcheck // the caller adds the context
}

// proofOfFence returns the evidence for a fence. It starts over if the fence has changed.
func (c *Controller) proofOfFence(r *v1alpha1.ClusterRing, f Fence, written bool) *proof {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fences == nil {
		c.fences = map[string]*proof{}
	}
	p, revision := c.fences[f.Policy.Name], f.Revision+string(r.Spec.Fence)
	if p == nil || p.revision != revision || written {
		p = &proof{revision: revision, since: time.Now()}
		c.fences[f.Policy.Name] = p
	}
	return p
}

func (c *Controller) forgetFence(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.fences, name)
}

// failFence reports why a fence is not installed, unless a retry is expected to succeed.
func (c *Controller) failFence(r *v1alpha1.ClusterRing, err error) (time.Duration, error) {
	if isRace(err) {
		return probePeriod, nil // the cache will catch up
	}
	c.reportFence(r, metav1.ConditionFalse, installFailed, err.Error())
	if errors.Is(err, errForeign) {
		return 0, nil // an event follows when the foreign object is deleted
	}
	return 0, err
}

// reportFence reports on the fence of one generation of a ring. The next one can ask for another.
func (c *Controller) reportFence(of *v1alpha1.ClusterRing, status metav1.ConditionStatus, reason, message string) {
	c.Reports.Change(of.Name, func(r *ring.Report) {
		r.Set(metav1.Condition{Type: place.FenceInstalled, Status: status, Reason: reason, Message: message, ObservedGeneration: of.Generation})
	})
}
