package processor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

const (
	// maxAttempts bounds the retries that follow at once on a conflict. More than these in a
	// row means that something else writes all the time: then the node waits its backoff.
	maxAttempts = 10

	// maxNoteBytes is the length in bytes that the note of an event may have (noteLengthLimit in
	// k8s.io/kubernetes/pkg/apis/core/validation/events.go).
	maxNoteBytes = 1024
)

// state is what a decision is made from.
type state struct {
	saved saved
	node  *preserve.Node
	// isFresh says that all of it was read from the API server after the transaction was taken up.
	isFresh bool
}

// known is what was read or written of a node since its transactions were taken up, the Node before its record. The zero value: nothing.
type known struct {
	node       *preserve.Node
	isNodeRead bool
	saved      *saved
}

// apply makes the effect of a transaction stored, if it is not. A nil error means that the
// transaction can be removed. What is known already needs no read. isStill is asked when what is remembered is in
// doubt: a fresh read that says whether there is what t was taken from.
func (p *Processor) apply(ctx context.Context, t txn.Transaction, k *known, isStill func(context.Context) (bool, error)) error {
	mustBeFresh := false
	for range maxAttempts {
		s, err := p.read(ctx, t, k, mustBeFresh)
		if err != nil {
			return err
		}
		d := preserve.Decide(t, s.saved.record, s.node, p.policy)
		if d.Action == preserve.Nothing && !s.isFresh {
			mustBeFresh = true // never drop anything on a cached read
			continue
		}
		// After all reads: the client sends those again if the API server is away, so they can outlast a restore of etcd.
		if p.history.InDoubt() {
			if ok, err := isStill(ctx); err != nil || !ok {
				return err
			}
		}
		k.saved, err = p.carryOut(ctx, t, s, d)
		if t.Type == txn.Added { // which may have changed the Node
			k.node, k.isNodeRead = nil, false
		}
		if !errors.Is(err, errStale) {
			return err
		}
		*k, mustBeFresh = known{}, true
	}
	return fmt.Errorf("applying transaction %s of node %q: %d conflicts in a row", t.Name(), t.Node, maxAttempts)
}

// read returns what the decision on t needs: what is known, or from the cache if that is good enough for a start.
func (p *Processor) read(ctx context.Context, t txn.Transaction, k *known, mustBeFresh bool) (state, error) {
	if k.saved != nil && (t.Type != txn.Added || k.isNodeRead) {
		return state{saved: *k.saved, node: k.node, isFresh: true}, nil
	}
	if !mustBeFresh {
		cached, err := p.records.cached(ctx, t.Node)
		// A restore needs a fresh record from the start: the patch of the Node is conditional on
		// the Node only, so it would put labels of a stale record there unnoticed.
		if err == nil && (t.Type != txn.Added || cached.record == nil) {
			return state{saved: cached}, nil
		}
	}
	s := state{isFresh: true}
	var err error
	if t.Type == txn.Added {
		// The Node before its record: then a restore by another processor either shows in the
		// record or makes the patch fail.
		if s.node, err = p.liveNode(ctx, t.Node); err != nil {
			return state{}, err
		}
	}
	s.saved, err = p.records.fresh(ctx, t.Node)
	if errors.Is(err, record.ErrUnreadable) {
		p.events.Eventf(s.saved.object, nil, corev1.EventTypeWarning, "RecordUnreadable", "Apply", "%s",
			note("Node %s waits for its labels until this record is mended or deleted: %v", t.Node, err))
	}
	return s, err
}

// carryOut writes what was decided, and returns the record as it is then, nil if that is not known.
func (p *Processor) carryOut(ctx context.Context, t txn.Transaction, s state, d preserve.Decision) (*saved, error) {
	log := logf.FromContext(ctx).WithValues("type", t.Type, "resourceVersion", t.ResourceVersion, "uid", t.UID)
	switch d.Action {
	case preserve.Nothing:
		after := &s.saved
		if s.saved.object != nil && s.saved.object.Annotations[record.AwaySinceAnnotation] != "" {
			// Any event is a sign of life: writing the record takes that annotation away.
			var err error
			if after, err = p.records.write(ctx, s.saved, *s.saved.record); err != nil {
				return nil, err
			}
		}
		p.metrics.countApplied(t, d.Action)
		log.V(1).Info("Dropped transaction", "reason", d.Reason)
		return after, nil
	case preserve.Save:
		after, err := p.records.write(ctx, s.saved, d.Record)
		if err != nil {
			return nil, err
		}
		p.metrics.countApplied(t, d.Action)
		if s.saved.record == nil || s.saved.record.Version != d.Record.Version { // else it is only a note
			p.informSaved(t, d)
		}
		log.Info("Saved labels", "reason", d.Reason, "count", len(d.Record.Labels), "version", d.Record.Version)
		return after, nil
	case preserve.Restore:
		return p.restore(ctx, t, s, d)
	}
	return nil, fmt.Errorf("applying transaction %s of node %q: unknown action %v", t.Name(), t.Node, d.Action)
}

// restore puts the labels onto the Node, then notes that in the record. A crash between the two is
// mended by the next attempt, which finds the marker.
func (p *Processor) restore(ctx context.Context, t txn.Transaction, s state, d preserve.Decision) (*saved, error) {
	patched, err := p.patchNode(ctx, t.Node, s.node.UID, s.node.ResourceVersion, map[string]any{"labels": labelChanges(s.node, d)})
	if err != nil {
		err = fmt.Errorf("restoring the labels of node %q: %w", t.Node, err)
		if isRefusal(err) {
			p.metrics.refused.Inc()
			p.events.Eventf(nodeReference(t.Node, t.UID), nil, corev1.EventTypeWarning, "LabelsRestoreFailed", "Restore", "%s",
				note("The saved labels cannot be put back, trying again: %v", err))
		}
		return nil, err
	}
	p.metrics.countApplied(t, d.Action)
	p.metrics.restore.Observe(max(0, time.Since(returnedAt(patched.CreationTimestamp.Time, t.ObservedAt)).Seconds()))
	p.informRestored(t, d)
	logf.FromContext(ctx).Info("Restored labels", "type", t.Type, "resourceVersion", t.ResourceVersion, "uid", t.UID,
		"reason", d.Reason, "count", len(d.Labels), "version", d.Marker)
	return p.records.write(ctx, s.saved, preserve.Noted(*s.saved.record, preserve.Node{UID: t.UID, ResourceVersion: patched.ResourceVersion, Labels: d.Labels}))
}

// isRefusal says whether the API server or an admission plugin refused the content of a
// request: what trying again alone does not mend.
func isRefusal(err error) bool {
	var status apierrors.APIStatus // an interface without Error, so errors.AsType does not take it
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusTooManyRequests
}

// note formats the note of an event and cuts it to the length that one may have.
func note(format string, args ...any) string {
	text := fmt.Sprintf(format, args...)
	// The cut may go through a character, and what is no UTF-8 comes back longer from the API server.
	return strings.ToValidUTF8(text[:min(len(text), maxNoteBytes)], "")
}

// nodeReference is one incarnation of a node as the object of an event.
func nodeReference(node string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: uid}
}
