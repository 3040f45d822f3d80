package faults_test

import (
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
)

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

func exists(t *testing.T, c client.Client, name string) bool {
	t.Helper()
	err := c.Get(t.Context(), client.ObjectKeyFromObject(configMap(name)), &corev1.ConfigMap{})
	require.NoError(t, client.IgnoreNotFound(err))
	return err == nil
}

func TestRefusedCallsWriteNothing(t *testing.T) {
	for _, fault := range []faults.Fault{&faults.Outage{}, &faults.Conflict{}, &faults.MissingRight{}} {
		inner := faults.Fake().Build()
		err := faults.Client(inner, fault).Create(t.Context(), configMap("a"))
		require.Error(t, err)
		assert.True(t, errors.Is(err, syscall.ECONNREFUSED) || apierrors.IsConflict(err) || apierrors.IsForbidden(err), "%v", err)
		assert.False(t, exists(t, inner, "a"))
	}
}

func TestLostAnswerWrites(t *testing.T) {
	inner := faults.Fake().Build()
	c := faults.Client(inner, &faults.LostAnswer{})
	require.ErrorIs(t, c.Create(t.Context(), configMap("a")), io.ErrUnexpectedEOF)
	assert.True(t, exists(t, inner, "a"))
	require.True(t, apierrors.IsAlreadyExists(c.Create(t.Context(), configMap("a"))), "a refusal is not hidden")
}

func TestSlowWaitsAsLongAsTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := faults.Fake().Build()
		c := faults.Client(inner, &faults.Slow{Delay: time.Minute})
		begin := time.Now()
		require.NoError(t, c.Create(t.Context(), configMap("a")))
		assert.Equal(t, time.Minute, time.Since(begin))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, c.Create(ctx, configMap("b")), context.DeadlineExceeded)
		assert.False(t, exists(t, inner, "b"))
	})
}

func TestRaceComesFirst(t *testing.T) {
	inner := faults.Fake().Build()
	race := &faults.Race{First: func(ctx context.Context) { assert.NoError(t, inner.Create(ctx, configMap("a"))) }}
	require.True(t, apierrors.IsAlreadyExists(faults.Client(inner, race).Create(t.Context(), configMap("a"))))
}

func TestCallsReportWhichAreHit(t *testing.T) {
	log := &faults.Log{}
	down := &faults.Outage{Calls: faults.Calls{Kind: "ConfigMap", Namespace: "ns", Skip: 1, Times: 2}}
	c := faults.Client(faults.Fake().Build(), log, down)
	ctx := t.Context()
	require.NoError(t, c.List(ctx, &corev1.ConfigMapList{}), "of all namespaces")
	require.NoError(t, c.List(ctx, &corev1.SecretList{}, client.InNamespace("ns")))
	require.NoError(t, c.Create(ctx, configMap("a")), "skipped")
	require.Error(t, c.Update(ctx, configMap("a")))
	require.Error(t, c.List(ctx, &corev1.ConfigMapList{}, client.InNamespace("ns")))
	require.NoError(t, c.Patch(ctx, configMap("a"), client.RawPatch("application/merge-patch+json", []byte(`{}`))))
	require.NoError(t, c.Delete(ctx, configMap("a")))
	assert.Equal(t, 2, down.Hits())

	calls := []faults.Call{}
	for _, entry := range log.Entries() {
		calls = append(calls, entry.Call)
	}
	assert.Equal(t, []faults.Call{
		{Verb: faults.List, Kind: "ConfigMap"},
		{Verb: faults.List, Kind: "Secret", Namespace: "ns"},
		{Verb: faults.Create, Kind: "ConfigMap", Namespace: "ns", Name: "a"},
		{Verb: faults.Update, Kind: "ConfigMap", Namespace: "ns", Name: "a"},
		{Verb: faults.List, Kind: "ConfigMap", Namespace: "ns"},
		{Verb: faults.Patch, Kind: "ConfigMap", Namespace: "ns", Name: "a"},
		{Verb: faults.Delete, Kind: "ConfigMap", Namespace: "ns", Name: "a"},
	}, calls)
}

func TestEndedFaultHitsNothing(t *testing.T) {
	down := &faults.Outage{}
	c := faults.Client(faults.Fake().Build(), down)
	require.Error(t, c.Create(t.Context(), configMap("a")))
	down.End()
	require.NoError(t, c.Create(t.Context(), configMap("a")))
	assert.Equal(t, 1, down.Hits())
}

func TestCallOfACancelledContextIsNotMade(t *testing.T) {
	inner := faults.Fake().Build()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, faults.Client(inner).Create(ctx, configMap("a")), context.Canceled)
	assert.False(t, exists(t, inner, "a"))
}
