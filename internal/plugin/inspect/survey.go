package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
)

// Survey is an overview of all nodes.
type Survey struct {
	// Nodes are sorted by name.
	Nodes []Summary
	// Pending has the transactions of all nodes: first the node that has waited longest, and the
	// transactions of each node in order.
	Pending   []Pending
	Malformed []Malformed
	Replicas  []Replica
	// ReplicasUnknown is the error of a watch of the replicas, if Replicas is unknown for that
	// reason. [Cluster.Survey] returns such an error instead.
	ReplicasUnknown error
	Locks           []Lock
	// MissingNamespaces has the namespaces of nodekeeper that do not exist or are being deleted.
	MissingNamespaces []string
	// AsksWebhooks reports whether the [WebhookConfiguration] exists. It is false for a user who
	// may not read it.
	AsksWebhooks bool

	live map[string]nodeSummary
}

// Summary is one node in a list. Unknown times are nil.
type Summary struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// UID is the uid of the live Node.
	UID string `json:"uid,omitempty"`
	// Labels is the number of saved labels, without the marker.
	Labels int `json:"labels"`
	// Version is the revision of the record, SavedAt the time of its labels, and Source the uid of
	// the incarnation that had them.
	Version string       `json:"version,omitempty"`
	SavedAt *metav1.Time `json:"savedAt,omitempty"`
	Source  string       `json:"source,omitempty"`
	// AwaySince is when a node that is away was deleted, or the last sign of it: see [LastHeard].
	AwaySince *metav1.Time `json:"awaySince,omitempty"`
	// LastHeard is the last sign of a node that is away, see [LastHeard]. It is never before
	// AwaySince.
	LastHeard *metav1.Time `json:"-"`
	// RestoredAt is when the labels of the live Node were restored.
	RestoredAt *metav1.Time `json:"restoredAt,omitempty"`
	// DeletionWaitsSince is when the live Node was deleted, if only nodekeeper's finalizer keeps
	// it.
	DeletionWaitsSince *metav1.Time `json:"deletionWaitsSince,omitempty"`
	// GatedSince is when the live Node got the marker [labels.Pending]: see [nodeview.GatedSince].
	GatedSince *metav1.Time `json:"gatedSince,omitempty"`
	// UnfollowedSince is since when the record has followed another Node, although the Node is there and
	// no transaction is left. It is nil for nodes that are not selected.
	UnfollowedSince *metav1.Time `json:"unfollowedSince,omitempty"`
	// Pending is the number of transactions.
	Pending int `json:"pending"`
	// Withheld is the number of labels of a machine that were not restored, and are saved
	// separately.
	// WaitingUID is the incarnation that gets them if it is the machine that had them.
	Withheld   int    `json:"withheld,omitempty"`
	WaitingUID string `json:"waitingForIdentityOfUID,omitempty"`
	// Problem is the parse error of the record, and Advice what makes it readable.
	Problem string `json:"problem,omitempty"`
	Advice  string `json:"advice,omitempty"`
	// Foreign reports whether the record is another program's ConfigMap.
	Foreign bool `json:"foreign,omitempty"`
}

// nodeSummary and savedSummary are the parts of a Node and of a record that a survey keeps in
// memory. They have no labels.
type nodeSummary struct {
	live         liveNode
	restoredAt   *metav1.Time
	waitingSince *metav1.Time
	gatedSince   *metav1.Time
	isTainted    bool
	isMatched    bool
	// createdAt is zero if the Node is not selected.
	createdAt time.Time
}

type savedSummary struct {
	Saved
	labels    int
	lastHeard time.Time
	isMatched bool
	// isForeign reports whether it is another program's ConfigMap, which matters only if there is a
	// node of its name.
	isForeign bool
	advice    string
}

// Survey reads all nodes that match the selector by their labels, or by their saved labels while
// they are away.
func (c *Cluster) Survey(ctx context.Context, selector apilabels.Selector) (*Survey, error) {
	var (
		s       Survey
		locks   []*coordinationv1.Lease
		places  []*coordinationv1.Lease
		live    map[string]nodeSummary
		records map[string]savedSummary
	)
	reads, readCtx := errgroup.WithContext(ctx)
	reads.Go(func() (err error) { s.Pending, s.Malformed, err = c.Transactions(readCtx); return err })
	reads.Go(func() (err error) { locks, err = c.leases(readCtx, c.TransactionNamespace); return err })
	var placesAt time.Time // long before the end of the other reads in a large cluster
	reads.Go(func() (err error) {
		places, err = c.leases(readCtx, c.MembershipNamespace)
		placesAt = c.Now()
		return err
	})
	reads.Go(func() (err error) { live, err = c.summarizeNodes(readCtx, selector); return err })
	reads.Go(func() (err error) { records, err = c.summarizeRecords(readCtx, selector); return err })
	reads.Go(func() (err error) { s.MissingNamespaces, err = c.missingNamespaces(readCtx); return err })
	reads.Go(func() (err error) { s.AsksWebhooks, err = c.asksWebhooks(readCtx); return err })
	if err := reads.Wait(); err != nil {
		return nil, err
	}
	s.Replicas, s.Locks = membersOf(placesOf(places, placesAt)), locksOf(locks, placesAt)
	board := NewBoard(selector)
	board.live, board.records = live, records
	for _, p := range s.Pending {
		board.SetPending(p)
	}
	s.Nodes, s.live = board.All(), live
	return &s, nil
}

// missingNamespaces returns the namespaces that do not exist or are being deleted, which accept no
// new objects. A namespace that the user may not read counts as existing, as its contents were
// read.
func (c *Cluster) missingNamespaces(ctx context.Context) ([]string, error) {
	var missing []string
	for _, name := range []string{c.TransactionNamespace, c.MetadataNamespace, c.MembershipNamespace} {
		namespace := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
		err := c.Client.Get(ctx, types.NamespacedName{Name: name}, namespace)
		if apierrors.IsNotFound(err) || namespace.DeletionTimestamp != nil {
			missing = append(missing, name)
		} else if err != nil && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("reading namespace %q: %w", name, err)
		}
	}
	return missing, nil
}

func (c *Cluster) asksWebhooks(ctx context.Context) (bool, error) {
	configuration := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{
		APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration",
	}}
	err := c.Client.Get(ctx, types.NamespacedName{Name: WebhookConfiguration}, configuration)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // the webhook is optional, and so is this right
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading MutatingWebhookConfiguration %q: %w", WebhookConfiguration, err)
	}
	return true, nil
}

func (c *Cluster) summarizeNodes(ctx context.Context, selector apilabels.Selector) (map[string]nodeSummary, error) {
	found := map[string]nodeSummary{}
	err := c.Nodes().Each(ctx, func(n *metav1.PartialObjectMetadata) error {
		summary := summarizeNode(n, selector)
		if c.View(n.Name).Selects(n.Labels) {
			summary.createdAt = n.CreationTimestamp.Time
		}
		found[n.Name] = summary
		return nil
	})
	return found, err
}

func summarizeNode(n *metav1.PartialObjectMetadata, selector apilabels.Selector) nodeSummary {
	summary := nodeSummary{
		live:       liveNode{isThere: true, uid: n.UID, marker: n.Labels[labels.Marker]},
		restoredAt: RestoredAt(n.Labels[labels.Marker], n.ManagedFields),
		isMatched:  selector.Matches(apilabels.Set(n.Labels)),
	}
	if nodes.IsLast(n.Finalizers) {
		summary.waitingSince = n.DeletionTimestamp
	}
	if summary.gatedSince = timeOf(nodeview.GatedSince(&n.ObjectMeta)); summary.gatedSince == nil {
		summary.isTainted = nodeview.TaintsSetAt(n.ManagedFields) != nil
	}
	return summary
}

func (c *Cluster) summarizeRecords(ctx context.Context, selector apilabels.Selector) (map[string]savedSummary, error) {
	records := map[string]savedSummary{}
	err := c.Records().EachConfigMap(ctx, func(cm *corev1.ConfigMap) error {
		if s, saves := summarizeRecord(cm, selector); saves {
			records[cm.Name] = s
		}
		return nil
	})
	return records, err
}

// summarizeRecord returns the summary of a record, and false for a floor.
func summarizeRecord(cm *corev1.ConfigMap, selector apilabels.Selector) (s savedSummary, saves bool) {
	s = savedSummary{Saved: ParseSaved(cm), lastHeard: LastHeard(cm)}
	if s.Floor.Object != nil {
		return s, false
	}
	if s.Record != nil {
		s.labels, s.isMatched = len(s.Record.Labels), selector.Matches(apilabels.Set(s.Record.Labels))
		s.Record.Labels = nil
	} else {
		s.isMatched = selector.Empty()
		s.isForeign, s.advice = errors.Is(s.Unreadable, record.ErrForeign), s.Advice()
	}
	s.Object = nil
	return s, true
}

// summarize returns the summary of a node. The deletions have an entry for each pending
// transaction, the zero time if it is none.
func summarize(name string, n nodeSummary, saved savedSummary, deletions []time.Time) Summary {
	pending := len(deletions)
	s := Summary{
		Name: name, State: stateOf(n.live, saved.Saved), UID: string(n.live.uid), Labels: saved.labels,
		RestoredAt: n.restoredAt, DeletionWaitsSince: n.waitingSince, GatedSince: n.gatedSince, Pending: pending,
	}
	if saved.Unreadable != nil {
		s.Problem, s.Advice = saved.Unreadable.Error(), saved.advice
		s.Foreign = saved.isForeign
	}
	switch {
	case s.State == Away:
		s.LastHeard = timeOf(saved.lastHeard)
		s.AwaySince = timeOf(awaySince(saved.Record, saved.lastHeard, deletions))
	case pending == 0 && !n.createdAt.IsZero() && saved.Record != nil && preserve.FollowsAnother(*saved.Record, n.live.uid):
		since := n.createdAt
		if saved.lastHeard.After(since) {
			since = saved.lastHeard
		}
		s.UnfollowedSince = timeOf(since)
	}
	if r := saved.Record; r != nil {
		s.Version, s.Source, s.SavedAt = r.Revision.String(), string(r.Source), timeOf(r.SavedAt)
		for _, w := range r.Withheld {
			s.Withheld += len(w.Labels)
			if w.State.WaitsFor(n.live.uid) {
				s.WaitingUID = string(n.live.uid)
			}
		}
	}
	return s
}

// RestoredAt returns when the labels of a Node with this marker and these managedFields were
// restored, which is when its marker was written. It is nil if they were not, or if the time is
// unknown.
func RestoredAt(marker string, managed []metav1.ManagedFieldsEntry) *metav1.Time {
	if marker == "" || marker == labels.Pending {
		return nil
	}
	return nodeview.MarkerSetAt(managed)
}

func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}
