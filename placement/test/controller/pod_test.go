package controller_test

import (
	"context"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/contract"
)

// pod is a pod that a test plays: it keeps a Lease, and acknowledges its contracts.
type pod struct {
	w           *world
	name        string
	incarnation string
	duration    time.Duration
	stop        func()        // stops to renew, as if the pod were killed
	over        chan struct{} // closed when the pod has stopped, or has lost its Lease

	mu sync.Mutex
	// silent pods do not acknowledge. change changes acknowledgements.
	silent bool
	change func(*contract.Contract, *contract.Ack)
	until  time.Time // it may work until then without a renewal
}

// pod starts a pod with a Lease that is new or free, and waits until it has a contract. Preparations
// change the pod before it runs.
func (w *world) pod(name string, duration time.Duration, prepare ...func(*pod)) *pod {
	w.t.Helper()
	p := w.join(name, duration, prepare...)
	w.awaitContract(name)
	return p
}

// awaitContract waits until the controller has created a ConfigMap.
func (w *world) awaitContract(name string) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(t *assert.CollectT) {
		assert.NoError(t, w.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: name}, &corev1.ConfigMap{}))
	}, patience, period)
}

func (w *world) join(name string, duration time.Duration, prepare ...func(*pod)) *pod {
	w.t.Helper()
	p := &pod{w: w, name: name, duration: duration, incarnation: contract.NewIncarnation(uuid.NewUUID(), string(uuid.NewUUID())[:8], duration)}
	ctx := w.t.Context()
	require.EventuallyWithT(w.t, func(t *assert.CollectT) {
		l := &coordinationv1.Lease{ObjectMeta: w.meta(name)}
		l.Labels, l.Annotations = map[string]string{contract.PoolLabel: pool}, map[string]string{}
		err := w.Get(ctx, client.ObjectKeyFromObject(l), l)
		isNew := apierrors.IsNotFound(err)
		if !isNew {
			require.NoError(t, err)
		}
		require.Empty(t, holderOf(l), "the Lease is held")
		l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &p.incarnation, new(int32(duration/time.Second))
		if isNew {
			require.NoError(t, w.Create(ctx, l))
			return
		}
		require.NoError(t, w.Update(ctx, l))
	}, patience, period)
	for _, change := range prepare {
		p.set(change)
	}
	running, cancel := context.WithCancel(ctx)
	p.over = make(chan struct{})
	go func() {
		defer close(p.over)
		p.run(running)
	}()
	p.stop = func() { cancel(); <-p.over }
	w.t.Cleanup(p.stop)
	return p
}

func holderOf(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// run keeps the Lease until ctx ends, or the Lease is lost.
func (p *pod) run(ctx context.Context) {
	defer p.w.work.end(p.incarnation)
	renewed := time.Now()
	p.set(func(p *pod) { p.until = renewed.Add(p.duration * 2 / 3) })
	for {
		ack, isNew := p.follow(ctx)
		if isNew || time.Since(renewed) >= p.duration/3 {
			began := time.Now()
			if lost, err := p.write(ctx, ack); lost {
				return
			} else if err == nil {
				renewed = began
				p.set(func(p *pod) { p.until = began.Add(p.duration * 2 / 3) })
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(period):
		}
	}
}

// follow reads the contract, and returns the acknowledgement that the Lease must have.
func (p *pod) follow(ctx context.Context) (ack string, isNew bool) {
	cm := &corev1.ConfigMap{}
	if p.w.Get(ctx, types.NamespacedName{Namespace: p.w.namespace, Name: p.name}, cm) != nil {
		return "", false
	}
	text := []byte(cm.Data[contract.DataKey])
	given, err := contract.DecodeContract(text)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || given.Incarnation != p.incarnation || p.silent {
		return "", false
	}
	p.w.work.follow(&given, p.until)
	answer := contract.Ack{Incarnation: p.incarnation, Generation: given.Generation, Digest: contract.Digest(text)}
	if p.change != nil {
		p.change(&given, &answer)
	}
	l := &coordinationv1.Lease{}
	if p.w.Get(ctx, types.NamespacedName{Namespace: p.w.namespace, Name: p.name}, l) != nil {
		return "", false
	}
	ack = string(answer.Encode())
	return ack, l.Annotations[contract.AcknowledgedAnnotation] != ack
}

// write renews the Lease. It reports whether the Lease is lost.
func (p *pod) write(ctx context.Context, ack string) (lost bool, err error) {
	l := &coordinationv1.Lease{}
	if err := p.w.Get(ctx, types.NamespacedName{Namespace: p.w.namespace, Name: p.name}, l); err != nil {
		return apierrors.IsNotFound(err), err
	}
	if holderOf(l) != p.incarnation {
		return true, nil
	}
	l.Spec.RenewTime = new(metav1.NowMicro())
	if ack != "" {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, contract.AcknowledgedAnnotation, ack)
	}
	return false, p.w.Update(ctx, l)
}

// set changes how the pod acknowledges.
func (p *pod) set(change func(*pod)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// leave ends the pod in order.
func (p *pod) leave() {
	p.w.t.Helper()
	p.stop()
	require.EventuallyWithT(p.w.t, func(t *assert.CollectT) {
		l := p.lease(t)
		if holderOf(l) != p.incarnation {
			return
		}
		if l.Annotations == nil {
			l.Annotations = map[string]string{}
		}
		contract.MarkEnded(l.Annotations, p.incarnation)
		l.Spec.HolderIdentity = new("")
		require.NoError(t, p.w.Update(p.w.t.Context(), l))
	}, patience, period)
}

func (p *pod) lease(t require.TestingT) *coordinationv1.Lease {
	l := &coordinationv1.Lease{}
	require.NoError(t, p.w.Get(p.w.t.Context(), types.NamespacedName{Namespace: p.w.namespace, Name: p.name}, l))
	return l
}

func (p *pod) configMap(t require.TestingT) *corev1.ConfigMap {
	cm := &corev1.ConfigMap{}
	require.NoError(t, p.w.Get(p.w.t.Context(), types.NamespacedName{Namespace: p.w.namespace, Name: p.name}, cm))
	return cm
}
