package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/place"
	"nodekeeper.dev/sharding/internal/ring"
)

// fenceSettle is how long each dry run must have been refused before a fence counts as installed:
// API servers that did not answer a dry run may load the fence a little later.
const fenceSettle = 3 * time.Second

// keepFence installs or removes the fence of a ring, and reports the result. It returns the delay
// before the next check, or zero if no check is needed.
func (c *Controller) keepFence(ctx context.Context, r *v1alpha1.ClusterRing, resources []Resource) (after time.Duration, err error) {
	if why := unfenced(r); why != "" {
		if err := c.removeFence(ctx, r.Name); err != nil {
			return 0, err
		}
		c.reportFence(r, metav1.ConditionTrue, disabled, why)
		return 0, nil
	}
	if why := c.unsupported(); why != "" {
		if err := c.removeFence(ctx, r.Name); err != nil {
			return 0, err
		}
		c.reportFence(r, metav1.ConditionFalse, place.FenceUnsupported, why)
		return 0, nil
	}
	f, err := c.fenceOf(ctx, r, resources)
	if err != nil {
		return 0, err
	}
	written, err := c.installFence(ctx, r.Name, f)
	if err != nil {
		c.forgetFence(r.Name) // it may have changed
		return c.failFence(r, err)
	}
	if written {
		logf.FromContext(ctx).Info("Installed a fence", "ring", r.Name, "fence", r.Spec.Fence)
	}
	p := c.proofOfFence(r, f, written)
	waiting := c.proveFence(ctx, r, f, p)
	switch {
	case waiting != "" && time.Since(p.since) >= unprobed:
		c.reportFence(r, metav1.ConditionFalse, place.FenceUnsupported, waiting+"; its admission plugin ValidatingAdmissionPolicy may be disabled")
		return failingPeriod, nil
	case waiting != "":
		c.reportFence(r, metav1.ConditionFalse, installing, waiting)
		return probePeriod, nil
	}
	c.reportFence(r, metav1.ConditionTrue, place.FenceWorks, effects[r.Spec.Fence])
	if err := c.removeFormerGuard(ctx, r.Name); err != nil {
		return 0, err
	}
	if r.Spec.Fence == v1alpha1.FenceDeny {
		return servingPeriod, nil
	}
	return 0, nil
}

// effects are the messages about fences that work.
var effects = map[v1alpha1.Fence]string{
	v1alpha1.FenceAudit: "the API server has the fence, which records requests of shards for the objects of other shards in its audit log and its metrics; nothing shows whether it applies it",
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

// fenceOf returns the fence of a ring.
func (c *Controller) fenceOf(ctx context.Context, r *v1alpha1.ClusterRing, resources []Resource) (Fence, error) {
	user, err := c.self(ctx)
	if err != nil {
		return Fence{}, err
	}
	b := &Builder{Prefix: c.Dialect.PrefixOf(r), Namespace: c.Namespace, Sharders: []string{user}, ByWebhook: c.Mode == ByWebhook}
	return b.BuildFence(r, resources), nil
}

// installFence creates or updates a fence. It reports whether it wrote anything.
func (c *Controller) installFence(ctx context.Context, name string, f Fence) (written bool, err error) {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	err = c.Client.Get(ctx, client.ObjectKeyFromObject(f.Policy), policy)
	same := err == nil && equality.Semantic.DeepEqual(policy.Spec, f.Policy.Spec)
	wrotePolicy, err := c.ensure(ctx, name, f.Policy.DeepCopy(), policy, same, err)
	if err != nil {
		return true, fmt.Errorf("installing ValidatingAdmissionPolicy %s: %w", f.Policy.Name, err)
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	err = c.Client.Get(ctx, client.ObjectKeyFromObject(f.Binding), binding)
	same = err == nil && equality.Semantic.DeepEqual(binding.Spec, f.Binding.Spec)
	wroteBinding, err := c.ensure(ctx, name, f.Binding.DeepCopy(), binding, same, err)
	if err != nil {
		return true, fmt.Errorf("installing ValidatingAdmissionPolicyBinding %s: %w", f.Binding.Name, err)
	}
	return wrotePolicy || wroteBinding, nil
}

// removeFence deletes the fence of a ring.
func (c *Controller) removeFence(ctx context.Context, ringName string) error {
	c.forgetFence(ringName)
	if err := c.removeValidating(ctx, ringName, fencePrefix+ringName); err != nil {
		return err
	}
	return c.removeValidating(ctx, ringName, formerGuardPrefix+ringName)
}

// removeFormerGuard deletes the guard of a former version. Call it when the fence, which guards the
// same metadata, is applied.
func (c *Controller) removeFormerGuard(ctx context.Context, ringName string) error {
	name := formerGuardPrefix + ringName
	for _, o := range validating() {
		err := c.Client.Get(ctx, types.NamespacedName{Name: name}, o)
		if err == nil {
			return c.removeValidating(ctx, ringName, name)
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading %T %s: %w", o, name, err)
		}
	}
	return nil
}

// removeValidating deletes a validating policy of a ring, the binding before the policy.
func (c *Controller) removeValidating(ctx context.Context, ringName, name string) error {
	for _, o := range validating() {
		if err := c.delete(ctx, ringName, types.NamespacedName{Name: name}, o); err != nil {
			return fmt.Errorf("deleting %T %s: %w", o, name, err)
		}
	}
	return nil
}

// validating returns an empty binding and an empty policy.
func validating() []client.Object {
	return []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicy{}}
}

// proveFence checks whether the API server applies a fence, and returns why it does not count as
// installed, or "". Nothing shows whether the API server applies a fence that only records.
func (c *Controller) proveFence(ctx context.Context, r *v1alpha1.ClusterRing, f Fence, p *fenceProof) string {
	if r.Spec.Fence != v1alpha1.FenceDeny {
		return ""
	}
	refused, err := c.refuses(ctx, r, f)
	wasApplied, isApplied := c.proven(&p.proof, refused, err)
	switch {
	case isApplied:
		return ""
	case refused:
		return "other API servers may not apply " + f.Policy.Name + " yet"
	case err == nil:
		return "a dry run does not show that the API server applies " + f.Policy.Name
	case !isTransient(err):
		return fmt.Sprintf("no dry run can show whether the API server applies %s: %v", f.Policy.Name, err)
	case wasApplied: // the next dry run will show it
		return ""
	}
	return fmt.Sprintf("could not determine whether the API server applies %s: %v", f.Policy.Name, err)
}

// proven records the result of a dry run, and reports whether the fence counted as installed before
// it and does so after it. An error that will soon be gone changes nothing.
func (c *Controller) proven(p *proof, refused bool, err error) (before, after bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before = p.applied
	switch {
	case refused && p.refusedSince.IsZero():
		p.refusedSince = time.Now()
	case !refused && (err == nil || !isTransient(err)):
		p.refusedSince, p.applied = time.Time{}, false
	}
	if refused {
		p.applied = time.Since(p.refusedSince) >= fenceSettle
	}
	return before, refused && p.applied
}

// Fenced reports whether the API server refuses requests of a shard of a ring for the objects of
// other shards now: this process has seen the fence applied for long enough, the stored policy and
// its binding are what this process wants, the pod of the shard has an account that the policy
// recognizes, and a dry run is refused. It uses no cache.
func (c *Controller) Fenced(ctx context.Context, r *v1alpha1.ClusterRing, shard string) (bool, error) {
	if unfenced(r) != "" || c.unsupported() != "" || r.Spec.Fence != v1alpha1.FenceDeny {
		return false, nil
	}
	f, isProven := c.provenFence(r)
	if !isProven {
		return false, nil
	}
	if isStored, err := c.isStored(ctx, f); !isStored || err != nil {
		return false, err
	}
	if isRecognized, err := c.isRecognized(ctx, r, shard); !isRecognized || err != nil {
		return false, err
	}
	refused, err := c.refuses(ctx, r, f)
	if err != nil {
		return false, fmt.Errorf("checking whether the API server applies %s: %w", f.Policy.Name, err)
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

// provenFence returns the fence of this generation of a ring, if this process has seen the API
// server apply it for long enough.
func (c *Controller) provenFence(r *v1alpha1.ClusterRing) (Fence, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.fences[r.Name]
	if p == nil || !p.applied || p.ring != r.UID || p.generation != r.Generation {
		return Fence{}, false
	}
	return p.fence, true
}

// isStored reports whether the policy and the binding of a fence are stored as this process wants
// them. A dry run does not show that: after an edit, the policy can still refuse it and nothing
// else.
func (c *Controller) isStored(ctx context.Context, f Fence) (bool, error) {
	policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	if err := c.Resources.Reader.Get(ctx, client.ObjectKeyFromObject(f.Policy), policy); err != nil {
		return false, client.IgnoreNotFound(err) //nolint:wrapcheck // the error names the object
	}
	if err := c.Resources.Reader.Get(ctx, client.ObjectKeyFromObject(f.Binding), binding); err != nil {
		return false, client.IgnoreNotFound(err) //nolint:wrapcheck // the error names the object
	}
	return equality.Semantic.DeepEqual(policy.Spec, f.Policy.Spec) && equality.Semantic.DeepEqual(binding.Spec, f.Binding.Spec), nil
}

// isRecognized reports whether the pod of a shard runs as one of the service accounts of the ring.
// The fence recognizes shards by these accounts. The account of a shard is unknown if its pod is
// gone, or if the sharder may not read the pod.
func (c *Controller) isRecognized(ctx context.Context, r *v1alpha1.ClusterRing, shard string) (bool, error) {
	pod, err := c.Pods.Pods(r.Spec.Shards.Namespace).Get(ctx, shard, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading the pod of shard %s: %w", shard, err)
	}
	return slices.Contains(r.Spec.Shards.ServiceAccounts, pod.Spec.ServiceAccountName), nil
}

// fenceProof is the evidence whether the API server applies a fence.
type fenceProof struct {
	proof

	fence Fence
	// ring and generation are those of the ring for which the fence was built.
	ring       types.UID
	generation int64
}

// proofOfFence returns the evidence for a fence. It starts over if the fence has changed.
func (c *Controller) proofOfFence(r *v1alpha1.ClusterRing, f Fence, written bool) *fenceProof {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fences == nil {
		c.fences = map[string]*fenceProof{}
	}
	p, revision := c.fences[r.Name], f.Revision+string(r.Spec.Fence)
	if p == nil || p.revision != revision || written {
		p = &fenceProof{proof: proof{revision: revision, since: time.Now()}}
		c.fences[r.Name] = p
	}
	p.fence, p.ring, p.generation = f, r.UID, r.Generation
	return p
}

func (c *Controller) forgetFence(ringName string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.fences, ringName)
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
