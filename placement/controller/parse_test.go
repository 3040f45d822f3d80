package controller

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nodekeeper.dev/placement"
)

var queueKind = &kindState{Kind: Kind{
	ReplicasPath: []string{"spec", "partitions"}, MaxPath: []string{"spec", "most"}, WeightPath: []string{"spec", "weight"},
	PayloadPath: []string{"spec"}, StatusPath: []string{"status"},
}}

// parsed returns a resource from JSON.
func parsed(t *testing.T, text string) *resource {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal([]byte(text), &u.Object))
	return parser(queueKind, 100)(u)
}

func TestWantedReplicas(t *testing.T) {
	t.Parallel()
	const decided = `"status":{"decision":7,"placements":[{"podName":"w","vreplicas":2,"incarnation":"a/1","indexes":"1,4","since":7}]}`
	for text, want := range map[string]struct {
		wanted           int32
		limited, invalid bool
	}{
		`{}`:                                 {wanted: 1},
		`{"spec":{"partitions":6}}`:          {wanted: 6},
		`{"spec":{"partitions":6,"most":4}}`: {wanted: 4, limited: true},
		`{"spec":{"partitions":6,"most":4},"status":{"maxAllowedVReplicas":3}}`: {wanted: 3, limited: true},
		`{"spec":{"partitions":101},` + decided + `}`:                           {wanted: 5, invalid: true},
		`{"spec":{"partitions":-1},` + decided + `}`:                            {wanted: 5, invalid: true},
		`{"spec":{"partitions":"x"},` + decided + `}`:                           {wanted: 5, invalid: true},
		`{"spec":{"partitions":1.5}}`:                                           {invalid: true},
		`{"spec":{"partitions":99999999999999999999}}`:                          {invalid: true},
		`{"spec":"x"}`: {invalid: true},
		`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"partitions":6}}`: {},
	} {
		r := parsed(t, text)
		assert.Equal(t, want.wanted, r.wanted, text)
		assert.Equal(t, want.limited, r.limited, text)
		assert.Equal(t, want.invalid, r.invalid, text)
	}
}

func TestStatusIsWrittenBesideOtherFields(t *testing.T) {
	t.Parallel()
	r := parsed(t, `{"metadata":{"name":"q"},"spec":{"partitions":2},"status":{"maxAllowedVReplicas":3,"phase":"Up","readyVReplicas":2,"releasing":[{"podName":"w"}]}}`)
	require.NoError(t, r.malformed)
	s := r.status
	s.Releasing, s.ReadyVReplicas, s.Decision = nil, 0, 8
	s.Placement = []placement.Placement{{PodName: "w", VReplicas: 2, Incarnation: "a/1", Indexes: "0-1", Since: 8}}
	u, err := r.withStatus(&s)
	require.NoError(t, err)
	text, err := json.Marshal(u.Object["status"])
	require.NoError(t, err)
	assert.JSONEq(t, `{"maxAllowedVReplicas":3,"phase":"Up","decision":8,"placements":[{"podName":"w","vreplicas":2,"incarnation":"a/1","indexes":"0-1","since":8}]}`, string(text))
	again, err := queueKind.decodeStatus(u)
	require.NoError(t, err)
	assert.True(t, isSameDecision(&s, &again))
	assert.NotContains(t, string(r.encoded), "placements", "what is stored is unchanged")
}

func TestMalformedStatusIsNotUsed(t *testing.T) {
	t.Parallel()
	for _, status := range []string{`"x"`, `{"decision":"x"}`, `{"placements":[{"indexes":"5-1"}]}`, `{"decision":-1}`} {
		assert.Error(t, parsed(t, `{"status":`+status+`}`).malformed, status)
	}
}

func TestMemberIsReadFromALease(t *testing.T) {
	t.Parallel()
	m := parseMember(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			"placement.nodekeeper.dev/zone": "a", "placement.nodekeeper.dev/capacity": "7", "placement.nodekeeper.dev/unschedulable": "true",
			"placement.nodekeeper.dev/ended": "u/0", "placement.nodekeeper.dev/acknowledged": `{"incarnation":"u/1","generation":4,"digest":"d"}`,
		}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("u/1"), LeaseDurationSeconds: new(int32(3))},
	})
	assert.Equal(t, "u/1", m.holder)
	assert.Equal(t, []string{"u/0"}, m.ended)
	assert.Equal(t, 3*time.Second, m.duration)
	assert.Equal(t, int64(4), m.ack.Generation)
	assert.Equal(t, "a", m.zone)
	assert.Equal(t, int32(7), m.capacity)
	assert.True(t, m.unschedulable)

	faulty := parseMember(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"placement.nodekeeper.dev/capacity": "-7", "placement.nodekeeper.dev/acknowledged": `{`}},
		Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(-3))},
	})
	assert.Equal(t, &member{lease: faulty.lease, duration: defaultDuration}, faulty)
}

func TestRenewalAloneDoesNotMatter(t *testing.T) {
	t.Parallel()
	at := time.Now()
	lease := func(holder string, after time.Duration, annotations map[string]string) *version[*member] {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
		return &version[*member]{at: at.Add(after), parsed: parseMember(l)}
	}
	before := lease("u/1", 0, nil)
	assert.False(t, isMoreThanRenewal(before, lease("u/1", 5*time.Second, nil)))
	assert.True(t, isMoreThanRenewal(before, lease("u/1", 15*time.Second, nil)), "it had expired")
	assert.True(t, isMoreThanRenewal(before, lease("", time.Second, nil)))
	assert.True(t, isMoreThanRenewal(before, lease("u/1", time.Second, map[string]string{"placement.nodekeeper.dev/acknowledged": "{}"})))
}
