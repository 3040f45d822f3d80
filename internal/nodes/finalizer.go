package nodes

import (
	"context"
	"fmt"
	"slices"

	"nodekeeper.dev/internal/nodeview"
)

// Finalizer is on every protected Node. The API server keeps a deleted Node until a processor has
// stored its last labels and removed the finalizer.
const Finalizer = "nodekeeper.dev/save-labels"

// WaitsForFinalizer reports whether [Finalizer] is the only finalizer of a Node that is being
// deleted. While there are others, its labels may still change after they are stored.
func WaitsForFinalizer(n *nodeview.Node) bool { return n.IsDeleting() && IsLast(n.Finalizers) }

// IsLast reports whether a Node has no finalizer but [Finalizer].
func IsLast(finalizers []string) bool { return slices.Equal(finalizers, []string{Finalizer}) }

// Protect adds [Finalizer] to a Node, conditional on the incarnation and the finalizers that were
// read: whatever else changes, the Node must be protected. It returns [ErrStale] if either has
// changed.
func (n *Nodes) Protect(ctx context.Context, read *nodeview.Node) error {
	p := jsonPatch{}
	p.test("/metadata/uid", read.UID)
	p.test("/metadata/finalizers", listOrNull(read.Finalizers))
	p.add("/metadata/finalizers", append(slices.Clone(read.Finalizers), Finalizer))
	return staleOr(n.patch(ctx, Metadata(read.Name), p))
}

// Unprotect removes [Finalizer] from a Node, conditional on the UID and the revision that were
// read, because the API server may delete the Node then, with labels that were set since. It
// returns [ErrStale] if the Node has changed.
func (n *Nodes) Unprotect(ctx context.Context, read *nodeview.Node) error {
	if read.Revision.IsZero() { // a patch without it would have no condition
		return fmt.Errorf("releasing node %q: its resourceVersion is not a number", read.Name)
	}
	others := slices.DeleteFunc(slices.Clone(read.Finalizers), func(f string) bool { return f == Finalizer })
	return staleOr(n.patch(ctx, Metadata(read.Name), mergePatch{"metadata": map[string]any{
		"uid": read.UID, "resourceVersion": read.Revision, "finalizers": others,
	}}))
}
