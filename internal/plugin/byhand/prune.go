package byhand

import (
	"context"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"nodekeeper.dev/internal/nodelock"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/processor/retention/removal"
)

// Prunable returns the nodes that have been away for at least age, in the order of the survey.
func Prunable(survey *inspect.Survey, age time.Duration, now time.Time) []inspect.Summary {
	var found []inspect.Summary
	for _, s := range survey.Nodes {
		if s.State == inspect.Away && s.Pending == 0 && s.LastHeard != nil && now.Sub(s.LastHeard.Time) >= age {
			found = append(found, s)
		}
	}
	return found
}

// Prune removes records like a processor that runs with --retention.
type Prune struct {
	cluster *inspect.Cluster
	dryRun  DryRun
	age     time.Duration
	remover *removal.Remover
}

// NewPrune returns a Prune for nodes that have been away for at least age. Repeating receives the
// first error of a check that is repeated until it succeeds or ctx ends.
func NewPrune(c *inspect.Cluster, dry DryRun, age time.Duration, repeating func(node string, err error)) *Prune {
	return &Prune{cluster: c, dryRun: dry, age: age, remover: &removal.Remover{
		Nodes: c.Nodes(), Queue: c.Queue(), Records: c.Records(), Locks: nodelock.New(c.Client, c.TransactionNamespace, lockIdentity()),
		Repeating: func(_ context.Context, node string, err error) { repeating(node, err) },
	}}
}

// Remove removes the record of a node unless a live read shows that the node is not away, and
// returns the outcome for a message. A dry run takes no lock, which would be a write.
func (p *Prune) Remove(ctx context.Context, name string) (result string, err error) {
	stored, err := p.cluster.Records().Get(ctx, name)
	if err != nil {
		return "", err
	}
	switch {
	case stored.Object == nil || stored.Record != nil && stored.Record.Floor:
		return describe(removal.Gone), nil
	case p.cluster.Now().Sub(inspect.LastHeard(stored.Object)) < p.age:
		return describe(removal.Changed), nil
	}
	outcome, err := p.outcome(ctx, stored.Object)
	return describe(outcome), err
}

func (p *Prune) outcome(ctx context.Context, cm *corev1.ConfigMap) (removal.Outcome, error) {
	if !p.dryRun.Dry() {
		return p.remover.Remove(ctx, cm)
	}
	outcome, err := p.remover.Check(ctx, cm)
	if err != nil || outcome != removal.Removed || p.dryRun == DryRunClient {
		return outcome, err
	}
	n, err := p.cluster.Node(ctx, cm.Name)
	if err != nil {
		return outcome, err
	}
	return outcome, Forget(ctx, p.cluster, p.dryRun, n, false)
}

// describe returns an outcome for a message, as in "node/x forgotten".
func describe(o removal.Outcome) string {
	switch o {
	case removal.Removed:
		return "forgotten"
	case removal.Busy:
		return "kept: a processor is working on it"
	case removal.Present:
		return "kept: it is back"
	case removal.Changed:
		return "kept: it was seen recently"
	case removal.Gone:
		return "already forgotten"
	case removal.Returned:
		return "kept: it came back just now"
	}
	return "kept"
}

// lockIdentity returns the holder identity of this process in locks.
func lockIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return "kubectl-nodekeeper-" + strings.ToLower(host) + "-" + rand.String(6)
}
