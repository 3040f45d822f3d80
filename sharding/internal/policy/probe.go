package policy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

const (
	// probePeriod is the interval between probes whether the API server applies new policies, which it
	// loads once a second, or calls new webhooks.
	probePeriod = time.Second
	// unprobed is how long to wait before policies and webhooks count as applied if probes are refused.
	unprobed = 35 * time.Second
)

const (
	// servingPeriod is the interval between probes of a webhook that has answered, and failingPeriod
	// if the last answer is missing.
	servingPeriod, failingPeriod = 30 * time.Second, 5 * time.Second
	// maxMissing is the number of missing answers in a row after which a webhook is reported.
	maxMissing = 3
)

// proof is the evidence whether the API server applies the policies of a ring, or calls its
// webhooks.
type proof struct {
	// revision identifies the policies or webhooks. since is when this process first found them
	// installed.
	revision string
	since    time.Time
	applied  bool
	// refusedSince is since when each dry run that was answered has been refused by a fence, or zero.
	refusedSince time.Time
	// missing counts the probes since the last one that a webhook has answered.
	missing int
	// note describes the evidence.
	note string
}

// prove checks whether the API server applies the given revision of a ring's policies, or calls that
// of its webhooks. After a positive result it does not check policies again; a webhook can fail at
// any time.
func (c *Controller) prove(ctx context.Context, ring *v1alpha1.ClusterRing, revision string, isNew bool) *proof {
	p := c.proofOf(ring.Name, revision, isNew)
	if p.applied && c.Mode == ByPolicy {
		return p
	}
	what := "the API server " + c.applies()
	applied, err := c.probe(ctx, ring)
	switch {
	case err == nil && applied == revision:
		p.applied, p.missing = true, 0
		p.note = "a dry run shows that " + what
	case err != nil && !isTransient(err):
		p.applied, p.missing = time.Since(p.since) >= unprobed, 0
		p.note = fmt.Sprintf("no dry run can show whether %s, which takes up to %s: %v", what, unprobed, err)
	case p.applied && p.missing+1 < maxMissing:
		p.missing++ // a webhook may be late once
	case err == nil:
		p.applied, p.note = false, "a dry run does not show that "+what
	default:
		p.applied, p.note = false, fmt.Sprintf("could not determine whether %s: %v", what, err)
	}
	return p
}

// applies describes what a probe shows.
func (c *Controller) applies() string {
	if c.Mode == ByWebhook {
		return "calls the webhooks"
	}
	return "applies the policies"
}

// recheckAfter returns the delay before the next probe, or zero if no event but a change requires
// it.
func (c *Controller) recheckAfter(p *proof) time.Duration {
	switch {
	case !p.applied && p.missing == 0:
		return probePeriod
	case !p.applied || p.missing > 0:
		return failingPeriod
	case c.Mode == ByWebhook:
		return servingPeriod
	}
	return 0
}

// probe returns the revision of the ring's policies that the API server applies, or another value
// if it applies none. It uses a dry run, which creates nothing: the policies replace the shard
// label of a ring by their revision.
func (c *Controller) probe(ctx context.Context, ring *v1alpha1.ClusterRing) (revision string, err error) {
	label := c.Dialect.PrefixOf(ring).ShardLabel(ring.Name)
	probe := &v1alpha1.ClusterRing{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Labels: map[string]string{label: "probe"}},
		Spec:       *ring.Spec.DeepCopy(),
	}
	err = c.Client.Create(ctx, probe, client.DryRunAll)
	return probe.Labels[label], err //nolint:wrapcheck // prove adds the context
}

// isTransient reports whether a probe that failed with this error may soon succeed.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError || apierrors.IsTooManyRequests(err)
}

// proofOf returns the evidence for a revision of a ring's policies. It starts over for another
// revision or for policies that were just written.
func (c *Controller) proofOf(ring, revision string, isNew bool) *proof {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proofs == nil {
		c.proofs = map[string]*proof{}
	}
	p := c.proofs[ring]
	if p == nil || p.revision != revision || isNew {
		p = &proof{revision: revision, since: time.Now()}
		c.proofs[ring] = p
	}
	return p
}

// installedRevision returns the revision of a ring's policies that this process has installed, or "".
func (c *Controller) installedRevision(ring string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.proofs[ring]; p != nil {
		return p.revision
	}
	return ""
}

func (c *Controller) forget(ring string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.proofs, ring)
}
