package nodelock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/nodelock"
)

const (
	namespace = "transactions"
	node      = "node-1"
)

// newFake returns a client of an empty cluster in memory.
func newFake() client.WithWatch { return faults.Fake().Build() }

// idle is work that does nothing.
func idle(context.Context) error { return nil }

// work is work that takes the given time, unless it is cancelled.
func work(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lease is the lock of the node, renewed by holder at that time.
func lease(ns, holder string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: node, UID: uuid.NewUUID(), Labels: map[string]string{nodelock.Label: nodelock.LabelValue}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       new(holder),
			LeaseDurationSeconds: new(int32(5)),
			AcquireTime:          new(metav1.NewMicroTime(renewed)),
			RenewTime:            new(metav1.NewMicroTime(renewed)),
		},
	}
}

// stored returns the node's Lease, or nil if it does not exist.
func stored(t *testing.T, c client.Reader, ns string) *coordinationv1.Lease {
	t.Helper()
	l := &coordinationv1.Lease{}
	err := c.Get(t.Context(), types.NamespacedName{Namespace: ns, Name: node}, l)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return l
}

// writes returns the calls in the log that are not reads.
func writes(log *faults.Log) []faults.Verb {
	var verbs []faults.Verb
	for _, entry := range log.Entries() {
		if entry.Verb != faults.Get && entry.Verb != faults.List {
			verbs = append(verbs, entry.Verb)
		}
	}
	return verbs
}
