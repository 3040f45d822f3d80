package controller

import (
	"context"
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"nodekeeper.dev/internal/daemon/rewind"
	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
)

// BenchmarkCalmPass is a pass over 10,000 virtual replicas on 200 pods that finds nothing to do.
func BenchmarkCalmPass(b *testing.B) {
	for _, resources := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("%dx%d", resources, 10000/resources), func(b *testing.B) {
			l := calmLoop(b, 200, resources, 10000/resources)
			l.pass(b.Context()) // the first pass of a process remembers more
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				l.pass(b.Context())
			}
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N)/1000, "cpu-ms/op")
		})
	}
}

// cpuTime returns the CPU time of this process. Unlike wall-clock time, it does not depend on the
// load of the machine.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var r syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// calmLoop returns a loop whose stores have a pool in which all is acknowledged. It has no clients:
// a pass that writes fails.
func calmLoop(b *testing.B, pods, resources, each int) *loop {
	b.Helper()
	k := &kindState{Kind: Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Queue"},
		ReplicasPath:     []string{"spec", "partitions"}, PayloadPath: []string{"spec"}, StatusPath: []string{"status"},
	}}
	l := newLoop(nil, Pool{Name: "worker", Namespace: "shop", Kinds: []Kind{k.Kind}, Tolerance: 1, Rebalance: 10, MaxReplicas: placement.MaxReplicas}, rewind.New())
	l.leaseRows, l.contracts, l.workloads = newStore(l, parseMember, nil), newStore(l, parseContract, nil), newStore(l, parseWorkload, nil)
	k.store, l.kinds = newStore(l, parser(k, l.MaxReplicas), nil), []*kindState{k}
	revision := 0
	meta := func(name string) metav1.ObjectMeta {
		revision++
		return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uuid.NewUUID(), Labels: map[string]string{contract.PoolLabel: "worker"}, ResourceVersion: strconv.Itoa(revision)}
	}
	incarnations, placed := make([]string, pods), make([][]contract.Placed, pods)
	for i := range pods {
		incarnations[i] = contract.NewIncarnation(uuid.NewUUID(), "7c1e09b2", time.Hour)
	}
	for i := range resources {
		q := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"partitions": int64(each), "topic": "a topic"}}}
		q.SetGroupVersionKind(k.GroupVersionKind)
		m := meta(fmt.Sprintf("orders-%d", i))
		q.SetNamespace(m.Namespace)
		q.SetName(m.Name)
		q.SetUID(m.UID)
		q.SetResourceVersion(m.ResourceVersion)
		q.SetGeneration(1)
		status := placement.Status{Decision: 17, ObservedGeneration: 1}
		for j := range each {
			at := (i*each + j) % pods
			status.Placement = append(status.Placement, placement.Placement{PodName: podOfNumber(at), VReplicas: 1, Incarnation: incarnations[at], Indexes: strconv.Itoa(j), Since: 17})
		}
		r := parser(k, l.MaxReplicas)(q)
		q, err := r.withStatus(&status)
		require.NoError(b, err)
		require.NoError(b, k.store.Add(q))
		one := parser(k, l.MaxReplicas)(q).placed
		one.Status, one.Live = status, true
		for j := range each {
			at := (i*each + j) % pods
			placed[at] = append(placed[at], one)
		}
	}
	for i := range pods {
		cm := &corev1.ConfigMap{ObjectMeta: meta(podOfNumber(i))}
		plan := contract.Build(&contract.Input{Incarnation: incarnations[i], View: &contract.View{ConfigMap: cm.UID}, Placed: placed[i]})
		text := plan.Contract.Encode()
		cm.Data = map[string]string{contract.DataKey: string(text)}
		require.NoError(b, l.contracts.Add(cm))
		ack := contract.Ack{Incarnation: incarnations[i], Generation: plan.Contract.Generation, Digest: contract.Digest(text)}
		lease := &coordinationv1.Lease{ObjectMeta: meta(podOfNumber(i)), Spec: coordinationv1.LeaseSpec{HolderIdentity: &incarnations[i], LeaseDurationSeconds: new(int32(3600))}}
		lease.Annotations = map[string]string{contract.AcknowledgedAnnotation: string(ack.Encode())}
		require.NoError(b, l.leaseRows.Add(lease))
	}
	// The conditions are those of the pass.
	p := &pass{loop: l, now: time.Now()}
	p.see()
	p.survey(context.Background())
	p.schedulePods()
	for _, c := range p.decide(context.Background()) {
		next, err := c.version.parsed.withStatus(&c.status)
		require.NoError(b, err)
		revision++
		next.SetResourceVersion(strconv.Itoa(revision))
		require.NoError(b, k.store.Update(next))
	}
	return l
}

func podOfNumber(i int) string { return fmt.Sprintf("worker-%d", i) }
