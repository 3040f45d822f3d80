// Package nodes is the only package that reads and writes Nodes. Reads always come from the API
// server, and every write is conditional on the Node that was read. It returns each Node reduced to
// the view, see [nodeview.Node].
package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/daemon/pages"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// ErrStale means that a write was rejected because the Node has changed or was deleted since it was
// read.
var ErrStale = errors.New("the node has changed since it was read")

// Nodes reads and writes Nodes. It is safe for concurrent use.
type Nodes struct {
	// Client reads and writes the API server directly, without a cache.
	Client client.Client
	// View is applied to every Node that is read, except by Each.
	View nodeview.View
	// Clock returns the API server's time at a local time, see [OrLocal]. The age of a Node is measured
	// by it, because the API server sets the time of creation. Nil means that the clocks agree.
	Clock func(local time.Time) time.Time
}

// Metadata returns empty metadata of a Node with that name, to read into or to watch.
func Metadata(name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}

// Reference returns a reference to an incarnation of a node, for events.
func Reference(node string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: uid}
}

// Get returns a Node, or nil if it does not exist.
func (n *Nodes) Get(ctx context.Context, name string) (*nodeview.Node, error) {
	whole := &corev1.Node{}
	if isThere, err := n.read(ctx, name, whole); err != nil || !isThere {
		return nil, err
	}
	return n.View.OfWhole(whole, n.time()), nil
}

// OrLocal returns a clock that is the local one while the given one returns zero, as the API
// server's time is unknown until its first answer.
func OrLocal(clock func(local time.Time) time.Time) func(local time.Time) time.Time {
	return func(local time.Time) time.Time { return cmp.Or(clock(local), local) }
}

// time returns the API server's time.
func (n *Nodes) time() time.Time {
	if n.Clock == nil {
		return time.Now()
	}
	return n.Clock(time.Now())
}

// GetMetadata is like Get, but reads much less: the Node is not whole, see [nodeview.Node].
func (n *Nodes) GetMetadata(ctx context.Context, name string) (*nodeview.Node, error) {
	node := Metadata(name)
	if isThere, err := n.read(ctx, name, node); err != nil || !isThere {
		return nil, err
	}
	return n.View.OfMetadata(node), nil
}

// read reads a Node into an object. It reports whether the Node exists.
func (n *Nodes) read(ctx context.Context, name string, into client.Object) (isThere bool, err error) {
	err = n.Client.Get(ctx, types.NamespacedName{Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil // "no Node" is one of the decision's inputs, not an error
	}
	if err != nil {
		return false, fmt.Errorf("reading node %q: %w", name, err)
	}
	return true, nil
}

// At returns a Node, nil if it does not exist, and the revision of all Nodes at that time. It needs
// no permissions except list.
func (n *Nodes) At(ctx context.Context, name string) (node *nodeview.Node, now revision.Revision, err error) {
	// Use a list instead of a get, because it returns the revision even if the Node is gone.
	list := &corev1.NodeList{}
	if err := n.Client.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: name}); err != nil {
		return nil, now, fmt.Errorf("reading node %q: %w", name, err)
	}
	if len(list.Items) > 0 {
		node = n.View.OfWhole(&list.Items[0], n.time())
	}
	return node, revision.Of(list.ResourceVersion), nil
}

// Now returns the current revision of all Nodes.
func (n *Nodes) Now(ctx context.Context) (revision.Revision, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := n.Client.List(ctx, list, client.Limit(1)); err != nil {
		return revision.Revision{}, fmt.Errorf("reading the revision of the nodes: %w", err)
	}
	return revision.Of(list.ResourceVersion), nil
}

// ConfirmEvent returns an error unless a live read of the node is consistent with the event that t
// records, see [txn.Happened]. If it is not, reportRewind receives the proof that the cluster was
// rewound, and returns the error.
//
// An existing Node is sufficient evidence: its revision is not after the revision of all Nodes, and
// the successor of an incarnation is newer than every state of it. Only if the node is gone, a list
// is needed, which always returns the revision of all Nodes.
func (n *Nodes) ConfirmEvent(ctx context.Context, t txn.Transaction, reportRewind func(proof string) error) error {
	var now revision.Revision
	live, err := n.GetMetadata(ctx, t.Node)
	if live != nil {
		now = live.Revision
	} else if err == nil {
		live, now, err = n.At(ctx, t.Node)
	}
	if err != nil {
		return fmt.Errorf("confirming an event: %w", err)
	}
	if txn.Happened(t, live, now) {
		return nil
	}
	return reportRewind(fmt.Sprintf("node %q was seen %s at resourceVersion %s, which never happened", t.Node, t.Type, t.Revision))
}

// Each calls do with the metadata of every Node, without applying the view, in pages, and stops at
// the first error.
func (n *Nodes) Each(ctx context.Context, do func(*metav1.PartialObjectMetadata) error) error {
	if err := pages.Each(ctx, n.Client, pages.Metadata("Node"), "", do); err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	return nil
}

// maxAge bounds the age of the read that a patch without the revision as its condition is based on:
// another processor may have restored the Node since, and a user may have undone that. It is
// shorter than the lease of a node's lock, and long enough for the read and the patches of a
// restore on a slow API server.
const maxAge = 4 * time.Second

// Wanted is the desired state of the viewed part of a Node.
type Wanted struct {
	// Labels are all labels of the view, including the annotations and taints among them.
	Labels map[string]string
	// Marker is the value of the label [labels.Marker]; "" removes it.
	Marker string
}

// Relabel replaces the viewed labels of a Node and its marker in one patch, and removes the startup
// taint. It returns the resulting Node, or [ErrStale]. Everything outside the view stays.
//
// The patch is conditional on the UID and the revision that were read. If the Node has changed
// since readAt, when the read began, a second patch follows, unless that was too long ago, or the
// patch would be too long. It is conditional on what it replaces, and on the marker, which another
// restore would have changed. Otherwise no Node could be restored whose status changes faster than
// it is read and written.
func (n *Nodes) Relabel(ctx context.Context, read *nodeview.Node, wanted Wanted, readAt time.Time) (*nodeview.Node, error) {
	return n.relabel(ctx, read, wanted, readAt)
}

// TryRelabel is a dry run of Relabel. It changes nothing.
func (n *Nodes) TryRelabel(ctx context.Context, read *nodeview.Node, wanted Wanted, readAt time.Time) error {
	_, err := n.relabel(ctx, read, wanted, readAt, client.DryRunAll)
	return err
}

func (n *Nodes) relabel(ctx context.Context, read *nodeview.Node, wanted Wanted, readAt time.Time, options ...client.PatchOption) (*nodeview.Node, error) {
	switch {
	case read.Revision.IsZero(): // a patch without it would have no condition
		return nil, fmt.Errorf("changing node %q: its resourceVersion is not a number", read.Name)
	case !read.IsWhole: // its taints would be lost
		return nil, fmt.Errorf("changing node %q: only its metadata was read", read.Name)
	}
	c := changesFor(read, wanted)
	after := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: read.Name}}
	err := n.patch(ctx, after, c.ifUnchanged(read), options...)
	if deadline := readAt.Add(maxAge); apierrors.IsConflict(err) && time.Now().Before(deadline) {
		if second := c.ifSame(read); len(second) <= maxOperations {
			within, cancel := context.WithDeadline(ctx, deadline)
			defer cancel()
			err = n.patch(within, after, second, options...)
		}
	}
	if err != nil {
		return nil, staleOr(err)
	}
	return n.View.OfWhole(after, n.time()), nil
}

// patch changes a Node, and replaces it by the result. If the test of a JSON patch fails, it returns
// [ErrStale]; see staleOr for other conditions.
func (n *Nodes) patch(ctx context.Context, node client.Object, p client.Patch, options ...client.PatchOption) error {
	err := n.Client.Patch(ctx, node, p, options...)
	if p.Type() == types.JSONPatchType && isTestFailed(err) {
		return ErrStale
	}
	if err != nil {
		return fmt.Errorf("changing node %q: %w", node.GetName(), err)
	}
	return nil
}

// staleOr returns [ErrStale] for the error of a write whose condition does not hold, and other
// errors as they are.
func staleOr(err error) error {
	// Conflict: the Node has changed, or the response to an earlier patch of this process was lost.
	// NotFound: it was deleted.
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ErrStale
	}
	return err
}

// Refused reports whether the API server or an admission plugin rejected the content of a request,
// so that a retry alone does not help. See LacksRight for requests that are refused because of their
// sender.
func Refused(err error) bool {
	status, ok := StatusOf(err)
	if !ok || LacksRight(err) {
		return false
	}
	return status.Code >= http.StatusBadRequest && status.Code < http.StatusInternalServerError && status.Code != http.StatusTooManyRequests
}

// LacksRight reports whether the API server refused a request because of its sender, whatever its
// content: the credentials are not valid, or a right is missing. The answer to a missing right
// differs from that of an admission plugin only in its text (forbiddenMessage in
// k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go). An admission webhook may pass
// on such an answer to a request of its own.
func LacksRight(err error) bool {
	status, ok := StatusOf(err)
	if !ok || isOfWebhook(status) {
		return false
	}
	if apierrors.IsUnauthorized(err) {
		return true
	}
	return apierrors.IsForbidden(err) && strings.Contains(status.Message, `is forbidden: User "`) && strings.Contains(status.Message, `" cannot `)
}

// StatusOf returns the answer of the API server in an error, if there is one.
func StatusOf(err error) (status metav1.Status, ok bool) {
	var answer apierrors.APIStatus // an interface without Error, so errors.AsType does not accept it
	if !errors.As(err, &answer) {
		return status, false
	}
	return answer.Status(), true
}

// isOfWebhook reports whether an admission webhook refused the request: the API server adds its name
// to the message (ToStatusErr in k8s.io/apiserver/pkg/admission/plugin/webhook/errors).
func isOfWebhook(status metav1.Status) bool {
	return strings.HasPrefix(status.Message, "admission webhook ")
}

// RefusedToNodekeeper reports whether nodekeeper's own admission policies rejected a request: a
// flag is set without its component, or another webhook changes the Node in the same request. See
// deploy/base/admission.yaml.
func RefusedToNodekeeper(err error) bool {
	return Refused(err) && strings.Contains(err.Error(), "nodekeeper's processor may not change")
}
