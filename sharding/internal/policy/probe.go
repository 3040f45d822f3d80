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
	// probePeriod is the interval between probes whether the API server applies the policies. The
	// API server loads new policies once a second.
	probePeriod = time.Second
	// unprobed is how long to wait before policies count as applied if probes are refused.
	unprobed = 35 * time.Second
)

// proof is the evidence whether the API server applies the policies of a ring.
type proof struct {
	// revision identifies the policies. since is when this process first found them installed.
	revision string
	since    time.Time
	applied  bool
	// note describes the evidence.
	note string
}

// prove checks whether the API server applies the given revision of a ring's policies with the ring
// as their parameter. After a positive result it does not check again.
func (c *Controller) prove(ctx context.Context, ring *v1alpha1.ClusterRing, revision string, isNew bool) *proof {
	p := c.proofOf(ring.Name, revision, isNew)
	if p.applied {
		return p
	}
	applied, err := c.probe(ctx, ring)
	switch {
	case err == nil:
		p.applied = applied == revision
		p.note = "a dry run shows that the API server does not apply the policies yet"
		if p.applied {
			p.note = "a dry run shows that the API server applies the policies"
		}
	case isTransient(err):
		p.note = fmt.Sprintf("could not determine whether the API server applies the policies: %v", err)
	default:
		p.applied = time.Since(p.since) >= unprobed
		p.note = fmt.Sprintf("no dry run can show whether the API server applies the policies, which takes up to %s: %v", unprobed, err)
	}
	return p
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
