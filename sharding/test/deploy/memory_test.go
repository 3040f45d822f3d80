package deploy

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/manifests"
	"nodekeeper.dev/test/programs"
)

// sizedObjects is 10000 in sharding/docs/install.md.
var sizedObjects = flag.Int("deploy.objects", 1000, "the number of objects with which the memory of the sharder is measured")

// TestRequestHoldsTheSharder measures the memory of a sharder while all objects of a ring move from a
// shard that has ended.
func TestRequestHoldsTheSharder(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the memory of a process is read from /proc")
	}
	s := newStory(t)
	sharder := s.sharder("sharder-0", nil, "--leader-elect=false").Last()
	s.addExample()
	s.lease("ends", "ends")
	s.eventually(func(c *assert.CollectT) {
		s.condition(c, checksums, "AdmissionInstalled", metav1.ConditionTrue, "PolicyInstalled")
	}, "new objects get their shard")
	begin := time.Now()
	s.manySecrets(*sizedObjects)
	t.Logf("%d objects created in %s", *sizedObjects, time.Since(begin).Round(time.Millisecond))
	s.lease("stays", "stays")
	begin = time.Now()
	released := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":""}}`))
	require.NoError(t, s.Patch(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: checksums, Name: "ends"}}, released))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		secrets := &metav1.PartialObjectMetadataList{}
		secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
		require.NoError(c, s.List(t.Context(), secrets, client.InNamespace(checksums), client.MatchingLabels{v1alpha1.DefaultPrefix.ShardLabel(checksums): "stays"}))
		moved := len(secrets.Items)
		assert.Equal(c, *sizedObjects, moved)
	}, patience+time.Duration(*sizedObjects)*10*time.Millisecond, time.Second, "all objects have moved")
	t.Logf("all objects moved in %s", time.Since(begin).Round(time.Millisecond))

	requested := deploymentIn(t, manifests.Render(t, ha)).Spec.Template.Spec.Containers[0].Resources.Requests.Memory().Value()
	used, err := programs.UsageOf(sharder.PID())
	require.NoError(t, err)
	t.Logf("it used at most %.0f MiB, and %.1f s of CPU", used.PeakMiB(), used.CPU.Seconds())
	assert.Less(t, used.PeakMemory, requested)
}

// manySecrets creates Secrets, several at a time. They are deleted at the end of the test.
func (s *story) manySecrets(n int) {
	s.t.Helper()
	s.t.Cleanup(func() {
		assert.NoError(s.t, s.DeleteAllOf(context.WithoutCancel(s.t.Context()), &corev1.Secret{}, client.InNamespace(checksums)))
	})
	errs := make([]error, n)
	workqueue.ParallelizeUntil(s.t.Context(), 32, n, func(i int) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: checksums, Name: fmt.Sprintf("sized-%d", i)}, Data: map[string][]byte{"k": []byte(strings.Repeat("x", 1000))}}
		errs[i] = s.Create(s.t.Context(), secret)
	})
	for _, err := range errs {
		require.NoError(s.t, err)
	}
}
