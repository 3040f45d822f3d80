package queue_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/controlplane"
)

var errAnswerLost = errors.New("the answer was lost")

// deleted is the end of a node.
func deleted() txn.Transaction {
	return txn.Transaction{
		Type: txn.Deleted, Node: "node-1", UID: "0b8a8a0c-9b1c-4bb5-8a43-6a1f2ac1d7a1", Revision: revision.MustParse("2571"),
		Labels: map[string]string{"rack": "r7", "example.com/team": "blue"}, Marker: "2214",
		ObservedAt: time.Date(2026, time.November, 21, 3, 14, 15, 926535000, time.UTC),
	}
}

func TestPutStoresTheTransaction(t *testing.T) {
	q := newQueue(t)
	require.NoError(t, q.Put(t.Context(), deleted()))

	cm := onlyConfigMap(t, q)
	got, err := txn.Parse(cm)
	require.NoError(t, err)
	assert.Equal(t, deleted(), got)

	cm.Data["rack"] = "r8"
	err = q.Client.Update(t.Context(), cm)
	assert.True(t, apierrors.IsInvalid(err), "a stored transaction never changes: %v", err)
}

func TestPutIsIdempotent(t *testing.T) {
	q := newQueue(t)
	require.NoError(t, q.Put(t.Context(), deleted()))
	first := onlyConfigMap(t, q)
	require.NoError(t, q.Put(t.Context(), deleted()))
	assert.Equal(t, first, onlyConfigMap(t, q))
}

func TestPutByTwoWatchersStoresOne(t *testing.T) {
	one := newQueue(t)
	two := &queue.Queue{Client: newClient(t), Namespace: one.Namespace}
	later := deleted()
	later.ObservedAt = later.ObservedAt.Add(1)

	var errs [2]error
	var wg sync.WaitGroup
	wg.Go(func() { errs[0] = one.Put(t.Context(), deleted()) })
	wg.Go(func() { errs[1] = two.Put(t.Context(), later) })
	wg.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	onlyConfigMap(t, one)
}

func TestPutSeparatesNodes(t *testing.T) {
	q := newQueue(t)
	other := deleted()
	other.Node = "node-2"
	require.NoError(t, q.Put(t.Context(), deleted()))
	require.NoError(t, q.Put(t.Context(), other))
	assert.Len(t, configMaps(t, q), 2)
}

func TestPutOfTakenNameFails(t *testing.T) {
	for name, change := range map[string]func(*txn.Transaction){
		"by another type":        func(tx *txn.Transaction) { tx.Type = txn.Updated },
		"by another incarnation": func(tx *txn.Transaction) { tx.UID = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(t)
			other := deleted()
			change(&other)
			require.NoError(t, q.Put(t.Context(), other))
			require.ErrorIs(t, q.Put(t.Context(), deleted()), queue.ErrNameTaken)

			require.NoError(t, q.Remove(t.Context(), queued(t, onlyConfigMap(t, q))))
			require.NoError(t, q.Put(t.Context(), deleted()))
			assert.Equal(t, deleted(), queued(t, onlyConfigMap(t, q)).Transaction)
		})
	}
}

// Otherwise a tombstone, and the return of the node behind it, would wait for the batch period of a
// save with its name.
func TestPutExpeditesTransactionWithItsName(t *testing.T) {
	q := newQueue(t)
	other := deleted()
	other.Type = txn.Updated
	require.NoError(t, q.Put(t.Context(), other))
	require.ErrorIs(t, q.Put(t.Context(), deleted()), queue.ErrNameTaken)
	expedited := queued(t, onlyConfigMap(t, q))
	assert.True(t, expedited.AtOnce)
	expedited.AtOnce = false
	assert.Equal(t, other, expedited.Transaction)

	version := onlyConfigMap(t, q).ResourceVersion
	require.ErrorIs(t, q.Put(t.Context(), deleted()), queue.ErrNameTaken)
	assert.Equal(t, version, onlyConfigMap(t, q).ResourceVersion, "once is enough")
}

func TestPutExpeditesSameEventOnlyIfUrgent(t *testing.T) {
	q := newQueue(t)
	require.NoError(t, q.Put(t.Context(), deleted()))
	require.NoError(t, q.Put(t.Context(), deleted()))
	assert.False(t, queued(t, onlyConfigMap(t, q)).AtOnce)
	asked := deleted()
	asked.AtOnce = true
	require.NoError(t, q.Put(t.Context(), asked))
	assert.Equal(t, asked, queued(t, onlyConfigMap(t, q)).Transaction)
}

func TestHasEventFindsOnlyTheEvent(t *testing.T) {
	q := newQueue(t)
	has := func() bool {
		found, err := q.HasEvent(t.Context(), deleted())
		require.NoError(t, err)
		return found
	}
	assert.False(t, has())
	require.NoError(t, q.Put(t.Context(), deleted()))
	assert.True(t, has())
	require.NoError(t, q.Remove(t.Context(), queued(t, onlyConfigMap(t, q))))
	assert.False(t, has())

	other := deleted()
	other.Type = txn.Updated
	require.NoError(t, q.Put(t.Context(), other))
	assert.False(t, has())
	assert.False(t, queued(t, onlyConfigMap(t, q)).AtOnce, "it is only a read")

	down := &queue.Queue{Namespace: q.Namespace, Client: intercept(t, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errAnswerLost
		},
	})}
	_, err := down.HasEvent(t.Context(), deleted())
	require.ErrorIs(t, err, errAnswerLost)
}

func TestPutRecognizesSquatter(t *testing.T) {
	q := newQueue(t)
	squatter := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: q.Namespace, Name: deleted().Name()},
		Data:       map[string]string{"type": "deleted"},
	}
	require.NoError(t, q.Client.Create(t.Context(), squatter))
	require.ErrorIs(t, q.Put(t.Context(), deleted()), queue.ErrNameTaken)
	assert.Equal(t, squatter.UID, onlyConfigMap(t, q).UID, "it stays")

	require.NoError(t, q.Client.Delete(t.Context(), squatter))
	require.NoError(t, q.Put(t.Context(), deleted()))
}

func TestPutAfterLostResponseStoresOne(t *testing.T) {
	q := newQueue(t)
	lossy := &queue.Queue{Namespace: q.Namespace, Client: intercept(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := c.Create(ctx, obj, opts...); err != nil {
				return err
			}
			return errAnswerLost
		},
	})}
	require.ErrorIs(t, lossy.Put(t.Context(), deleted()), errAnswerLost)
	require.NoError(t, lossy.Put(t.Context(), deleted()))
	onlyConfigMap(t, q)
}

func TestPutThatCannotConfirmMustBeRetried(t *testing.T) {
	q := newQueue(t)
	require.NoError(t, q.Put(t.Context(), deleted()))
	// A processor applies the transaction between the rejected create and the read.
	racing := &queue.Queue{Namespace: q.Namespace, Client: intercept(t, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := q.Remove(ctx, queued(t, onlyConfigMap(t, q))); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})}
	err := racing.Put(t.Context(), deleted())
	require.ErrorIs(t, err, queue.ErrNameFreed)
	require.NotErrorIs(t, err, queue.ErrNameTaken)

	require.NoError(t, racing.Put(t.Context(), deleted()))
	onlyConfigMap(t, q)
}

func TestRemoveDeletesTheTransaction(t *testing.T) {
	q := newQueue(t)
	require.NoError(t, q.Put(t.Context(), deleted()))
	require.NoError(t, q.Remove(t.Context(), queued(t, onlyConfigMap(t, q))))
	assert.Empty(t, configMaps(t, q))
}

func TestRemoveOfMissingTransactionIsNotAnError(t *testing.T) {
	q := newQueue(t)
	require.NoError(t, q.Put(t.Context(), deleted()))
	old := queued(t, onlyConfigMap(t, q))
	require.NoError(t, q.Remove(t.Context(), old))
	require.NoError(t, q.Remove(t.Context(), old))
}

func TestRemoveKeepsAnotherOfTheSameName(t *testing.T) {
	q := newQueue(t)
	require.NoError(t, q.Put(t.Context(), deleted()))
	old := queued(t, onlyConfigMap(t, q))
	require.NoError(t, q.Remove(t.Context(), old))
	require.NoError(t, q.Put(t.Context(), deleted()))
	newer := onlyConfigMap(t, q)
	require.NotEqual(t, old.ObjectUID, newer.UID)

	require.NoError(t, q.Remove(t.Context(), old))
	assert.Equal(t, newer, onlyConfigMap(t, q))
}

func TestRemoveAfterLostResponse(t *testing.T) {
	q := newQueue(t)
	require.NoError(t, q.Put(t.Context(), deleted()))
	lossy := &queue.Queue{Namespace: q.Namespace, Client: intercept(t, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := c.Delete(ctx, obj, opts...); err != nil {
				return err
			}
			return errAnswerLost
		},
	})}
	old := queued(t, onlyConfigMap(t, q))
	require.ErrorIs(t, lossy.Remove(t.Context(), old), errAnswerLost)
	require.NoError(t, lossy.Remove(t.Context(), old))
	assert.Empty(t, configMaps(t, q))
}

func TestPutAndRemoveErrorsNameTheTransaction(t *testing.T) {
	outage := apierrors.NewServiceUnavailable("outage")
	q := &queue.Queue{Namespace: "ns", Client: intercept(t, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return outage },
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return outage },
	})}
	for _, err := range []error{
		q.Put(t.Context(), deleted()),
		q.Remove(t.Context(), queue.Queued{Transaction: deleted(), ObjectUID: "u"}),
	} {
		require.ErrorIs(t, err, outage)
		require.ErrorContains(t, err, deleted().Name())
		assert.ErrorContains(t, err, `node "node-1"`)
	}
}

func TestHoldsIdentifiesTransactionByUID(t *testing.T) {
	q := newQueue(t)
	require.NoError(t, q.Put(t.Context(), deleted()))
	first := queued(t, onlyConfigMap(t, q))
	assertHolds(t, q, first, true)

	require.NoError(t, q.Remove(t.Context(), first))
	assertHolds(t, q, first, false)
	require.NoError(t, q.Put(t.Context(), deleted()))
	assertHolds(t, q, first, false)
	assertHolds(t, q, queued(t, onlyConfigMap(t, q)), true)
}

func assertHolds(t *testing.T, q *queue.Queue, tx queue.Queued, want bool) {
	t.Helper()
	got, err := q.Holds(t.Context(), tx)
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

// newQueue returns a queue in a namespace of its own.
func newQueue(t *testing.T) *queue.Queue {
	t.Helper()
	c := newClient(t)
	return &queue.Queue{Client: c, Namespace: controlplane.Namespace(t, c)}
}

func newClient(t *testing.T) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(api.Config, client.Options{})
	require.NoError(t, err)
	return c
}

func intercept(t *testing.T, funcs interceptor.Funcs) client.Client {
	t.Helper()
	return interceptor.NewClient(newClient(t), funcs)
}

// configMaps returns all ConfigMaps in the queue's namespace.
func configMaps(t *testing.T, q *queue.Queue) []corev1.ConfigMap {
	t.Helper()
	var list corev1.ConfigMapList
	require.NoError(t, q.Client.List(t.Context(), &list, client.InNamespace(q.Namespace)))
	return list.Items
}

// onlyConfigMap returns the only ConfigMap in the queue's namespace.
func onlyConfigMap(t *testing.T, q *queue.Queue) *corev1.ConfigMap {
	t.Helper()
	items := configMaps(t, q)
	require.Len(t, items, 1)
	return &items[0]
}

func queued(t *testing.T, cm *corev1.ConfigMap) queue.Queued {
	t.Helper()
	tx, err := queue.Parse(cm)
	require.NoError(t, err)
	return tx
}
