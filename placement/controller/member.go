package controller

import (
	"maps"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/placement/contract"
)

// defaultDuration is the lease duration of an incarnation if neither its name nor its Lease has it.
const defaultDuration = 15 * time.Second

// member is the Lease of a pod.
type member struct {
	lease *coordinationv1.Lease
	// holder is the incarnation, or empty if the Lease is free. ended are the last ones that are
	// known to have ended.
	holder        string
	ended         []string
	duration      time.Duration
	ack           contract.Ack // empty if it is malformed
	zone          string
	capacity      int32
	unschedulable bool
}

func parseMember(o metav1.Object) *member {
	l, ok := o.(*coordinationv1.Lease)
	if !ok {
		l = &coordinationv1.Lease{}
	}
	m := &member{
		lease: l, ended: contract.Ended(l.Annotations), duration: defaultDuration,
		zone: l.Annotations[contract.ZoneAnnotation], unschedulable: l.Annotations[contract.UnschedulableAnnotation] == "true",
	}
	if l.Spec.HolderIdentity != nil {
		m.holder = *l.Spec.HolderIdentity
	}
	if named := contract.LeaseDuration(m.holder); named > 0 {
		m.duration = named // which holds for the whole incarnation
	} else if l.Spec.LeaseDurationSeconds != nil && *l.Spec.LeaseDurationSeconds > 0 {
		m.duration = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	if capacity, err := strconv.ParseInt(l.Annotations[contract.CapacityAnnotation], 10, 32); err == nil && capacity > 0 {
		m.capacity = int32(capacity)
	}
	if ack, err := contract.DecodeAck([]byte(l.Annotations[contract.AcknowledgedAnnotation])); err == nil {
		m.ack = ack
	}
	return m
}

// isMoreThanRenewal reports whether a new version of a Lease may change a decision.
func isMoreThanRenewal(before, after *version[*member]) bool {
	b, a := before.parsed, after.parsed
	return b.holder != a.holder || b.duration != a.duration || after.at.Sub(before.at) >= b.duration || !maps.Equal(b.lease.Annotations, a.lease.Annotations)
}

// stored is the ConfigMap of a contract.
type stored struct {
	configMap  *corev1.ConfigMap
	contract   contract.Contract
	digest     string
	unreadable bool
}

func parseContract(o metav1.Object) *stored {
	cm, ok := o.(*corev1.ConfigMap)
	if !ok {
		cm = &corev1.ConfigMap{}
	}
	text := []byte(cm.Data[contract.DataKey])
	s := &stored{configMap: cm, digest: contract.Digest(text)}
	var err error
	s.contract, err = contract.DecodeContract(text)
	s.unreadable = err != nil
	return s
}
