package queue_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// These are the actual responses of kube-apiserver 1.37 and etcd 3.7. Only the 413 is a stable
// interface, so new versions must pass this test.
func TestPutOfOversizedLabelsIsTooLarge(t *testing.T) {
	for name, tc := range map[string]struct {
		count, keyLength int
		message          string
	}{
		"values over 1 MiB":                     {17000, 6, "the labels do not fit into a ConfigMap"},
		"over the limit of etcd":                {5000, 243, "etcdserver: request is too large"},
		"over what is sent to etcd":             {9500, 243, "trying to send message larger than max"},
		"over the API server's limit of a body": {12000, 243, "Request entity too large: limit is 3145728"},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(t)
			err := q.Put(t.Context(), withLabels(tc.count, tc.keyLength))
			require.ErrorIs(t, err, queue.ErrTooLarge)
			require.ErrorContains(t, err, tc.message)
			assert.Empty(t, configMaps(t, q))
		})
	}
}

func TestPutDoesNotSendMoreThanAConfigMapsValues(t *testing.T) {
	q := &queue.Queue{Namespace: "ns", Client: intercept(t, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			assert.Fail(t, "it was sent")
			return nil
		},
	})}
	require.ErrorIs(t, q.Put(t.Context(), withLabels(17000, 6)), queue.ErrTooLarge)
}

func TestPutRecognizesTheLimitOfAConfigMapsValues(t *testing.T) {
	q := newQueue(t)
	q.Client = intercept(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			obj.(*corev1.ConfigMap).Data["more"] = strings.Repeat("v", txn.MaxDataBytes) // Put itself rejects it
			return c.Create(ctx, obj, opts...)
		},
	})
	err := q.Put(t.Context(), deleted())
	require.ErrorIs(t, err, queue.ErrTooLarge)
	require.Regexp(t, "Too long: (may not be more than|must have at most) 1048576 bytes", err.Error())
	var status *apierrors.StatusError
	require.ErrorAs(t, err, &status)
	assert.EqualValues(t, http.StatusUnprocessableEntity, status.ErrStatus.Code)
}

// Labels that the API server accepts are never rejected: they may be the only copy.
func TestPutStoresLabelsThatJustFit(t *testing.T) {
	for name, tc := range map[string]struct{ count, keyLength int }{
		"keys and values over 1 MiB":           {16000, 6},
		"no room for managedFields":            {4000, 243},
		"values near 1 MiB in the hashed form": {2500, 317},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(t)
			tx := withLabels(tc.count, tc.keyLength)
			require.NoError(t, q.Put(t.Context(), tx))
			require.NoError(t, q.Put(t.Context(), tx))
			assert.Equal(t, tx, queued(t, onlyConfigMap(t, q)).Transaction)
		})
	}
}

func TestPutDistinguishesOtherRejections(t *testing.T) {
	configMap := corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind()
	resource := corev1.Resource("configmaps")
	for name, answer := range map[string]error{
		"an internal error":   apierrors.NewInternalError(context.DeadlineExceeded),
		"etcd's space is out": &apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: "etcdserver: mvcc: database space exceeded"}},
		"a quota":             apierrors.NewForbidden(resource, "x", context.Canceled),
		"an illegal field":    apierrors.NewInvalid(configMap, "x", field.ErrorList{field.Invalid(field.NewPath("data"), "x", "too long for us")}),
		"too many requests":   apierrors.NewTooManyRequests("later", 1),
		"a cancelled context": context.Canceled,
	} {
		t.Run(name, func(t *testing.T) {
			q := &queue.Queue{Namespace: "ns", Client: intercept(t, interceptor.Funcs{
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return answer },
			})}
			err := q.Put(t.Context(), deleted())
			require.ErrorIs(t, err, answer)
			assert.NotErrorIs(t, err, queue.ErrTooLarge)
		})
	}
}

func TestPutToMissingNamespaceIsNotTooLarge(t *testing.T) {
	q := &queue.Queue{Client: newClient(t), Namespace: "no-such-namespace"}
	err := q.Put(t.Context(), deleted())
	require.True(t, apierrors.IsNotFound(err), "got %v", err)
	assert.NotErrorIs(t, err, queue.ErrTooLarge)
}

func TestPutOfTooLongNameIsNotTooLarge(t *testing.T) {
	tx := deleted()
	tx.Revision = revision.Of(strings.Repeat("9", 200))
	err := newQueue(t).Put(t.Context(), tx)
	require.True(t, apierrors.IsInvalid(err), "got %v", err)
	assert.NotErrorIs(t, err, queue.ErrTooLarge)
}

// withLabels returns a transaction with the given number of labels, with keys of that length and
// values of maximum length.
func withLabels(count, keyLength int) txn.Transaction {
	tx := deleted()
	tx.Labels = make(map[string]string, count)
	for i := range count {
		key := fmt.Sprintf("%0*d", min(keyLength, 63), i)
		if keyLength > len(key) {
			key = strings.Repeat("p", keyLength-len(key)-len("/")) + "/" + key
		}
		tx.Labels[key] = strings.Repeat("v", 63)
	}
	return tx
}
