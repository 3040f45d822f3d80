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
	// probePeriod is the time between two questions whether the API server applies the policies. It looks
	// for new ones once a second.
	probePeriod = time.Second
	// unprobed is how long to wait for that if it cannot be asked. It looks for new kinds of parameters
	// every 30 seconds.
	unprobed = 35 * time.Second
)

// proof is what is known of whether the API server applies the policies of a ring.
type proof struct {
	// revision is that of the policies, and since is when this process first knew them installed.
	revision string
	since    time.Time
	applied  bool
	// note says how that was found out.
	note string
}

// prove asks the API server whether it applies the policies of a ring: those of a revision, with the ring
// as their parameter. Once it does, it is not asked again.
func (c *Controller) prove(ctx context.Context, ring *v1alpha1.ClusterRing, revision string, isNew bool) *proof {
	p := c.proofOf(ring.Name, revision, isNew)
	if p.applied {
		return p
	}
	seen, err := c.probe(ctx, ring)
	switch {
	case err == nil:
		p.applied = seen == revision
		p.note = "a dry run shows that the API server does not apply the policies yet"
		if p.applied {
			p.note = "a dry run shows that the API server applies the policies"
		}
	case isTransient(err):
		p.note = fmt.Sprintf("the API server does not say whether it applies the policies: %v", err)
	default:
		p.applied = time.Since(p.since) >= unprobed
		p.note = fmt.Sprintf("no dry run shows whether the API server applies the policies, which takes up to %s: %v", unprobed, err)
	}
	return p
}

// probe returns the revision of the policies of a ring that the API server applies, or something else. It
// asks by a dry run, which creates nothing: policies replace the shard label of a ring by their revision.
func (c *Controller) probe(ctx context.Context, ring *v1alpha1.ClusterRing) (revision string, err error) {
	label := c.Dialect.PrefixOf(ring).ShardLabel(ring.Name)
	asked := &v1alpha1.ClusterRing{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Labels: map[string]string{label: "probe"}},
		Spec:       *ring.Spec.DeepCopy(),
	}
	err = c.Client.Create(ctx, asked, client.DryRunAll)
	return asked.Labels[label], err //nolint:wrapcheck // prove says what
}

// isTransient reports whether the same question may have another answer soon.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError || apierrors.IsTooManyRequests(err)
}

// proofOf returns what is known, which is nothing of another revision, or of policies that were written
// just now.
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

func (c *Controller) forget(ring string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.proofs, ring)
}
