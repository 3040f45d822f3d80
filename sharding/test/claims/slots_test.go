package claims

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/slots"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/repository"
)

var keyCount = flag.Int("slots.keys", 4000, "number of random keys for which the API server's result is compared")

// The results agree for every possible key: for names of any legal length, with any characters, and
// for label values.
func TestAPIServerComputesTheSameSlots(t *testing.T) {
	t.Parallel()
	s := newSlotter(t)
	keys := []string{
		"/Secret/default/s1", "/Secret/default/s2", "/Node//node-1", "a", "project-foo", "apps/Deployment/team-a/api",
		"rbac.authorization.k8s.io/ClusterRole//system:node", "", " ", "\x00", "A_B.c-9", "ä", "日本語/クラス", "🦆", "e\u0301",
		strings.Repeat("z", 635), strings.Repeat("Z.", 317), strings.Repeat("界", 635),
		strings.Repeat("🦆", 635), "a\nb", "\u2028", "ab", "abc", "abcd", "abcde", // numbers of any number of bytes
		slots.Object{Group: strings.Repeat("g", 253), Kind: strings.Repeat("K", 63), Namespace: strings.Repeat("n", 63), Name: strings.Repeat("o", 253)}.Key(),
	}
	s.compare(t, keys)
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for left := *keyCount; left > 0; left -= batch {
		drawn := make([]string, min(left, batch))
		for i := range drawn {
			drawn[i] = drawKey(r)
		}
		s.compare(t, drawn)
	}
}

var vector = regexp.MustCompile("(?m)^\\| `(\".*\")`(?: × (\\d+))? \\| (\\d+) \\|$")

// TestVectorsOfThePage covers R11: the vectors in sharding/docs/slots.md match the results of the
// library and of the API server.
func TestVectorsOfThePage(t *testing.T) {
	t.Parallel()
	root, err := repository.Root()
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "sharding", "docs", "slots.md"))
	require.NoError(t, err)
	var keys []string
	for _, row := range vector.FindAllStringSubmatch(string(page), -1) {
		key, err := strconv.Unquote(row[1])
		require.NoError(t, err)
		if row[2] != "" {
			times, err := strconv.Atoi(row[2])
			require.NoError(t, err)
			key = strings.Repeat(key, times)
		}
		keys = append(keys, key)
		assert.Equal(t, row[3], strconv.Itoa(slots.Slot(key)), "of %s", row[1])
	}
	assert.Len(t, keys, 22)
	newSlotter(t).compare(t, keys)
}

// batch is the number of keys per request.
const batch = 200

// drawKey returns a random key. Most look like the key of an object.
func drawKey(r *rand.Rand) string {
	if r.IntN(8) == 0 {
		runes := make([]rune, r.IntN(64))
		for i := range runes {
			runes[i] = rune(r.IntN(0xd800)) // up to the surrogates, which are not valid in text
		}
		return string(runes)
	}
	name := func(length int) string {
		const characters = "abcdefghijklmnopqrstuvwxyz0123456789-.:ABCXYZ_"
		text := make([]byte, r.IntN(length))
		for i := range text {
			text[i] = characters[r.IntN(len(characters))]
		}
		return string(text)
	}
	return slots.Object{Group: name(30), Kind: name(20), Namespace: name(40), Name: name(60)}.Key()
}

// slotter computes slots in the API server: a policy annotates a ConfigMap with the slots of its
// data.
type slotter struct {
	client    client.Client
	namespace string
}

func newSlotter(t *testing.T) *slotter {
	t.Helper()
	c := policyClient(t)
	s := &slotter{client: c, namespace: controlplane.Namespace(t, c)}
	install(t, c, s.namespace, "", admissionregistrationv1.MutatingAdmissionPolicySpec{
		FailurePolicy:    new(admissionregistrationv1.Fail),
		MatchConstraints: on("", []string{"configmaps"}, admissionregistrationv1.Create),
		MatchConditions:  []admissionregistrationv1.MatchCondition{inNamespace(s.namespace)},
		Mutations:        patching("[JSONPatch{op: 'add', path: '/metadata/annotations', value: object.data.transformMap(k, v, string(" + slots.CEL("v") + "))}]"),
	})
	ctx := t.Context()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		got, err := s.ask(ctx, []string{"a"})
		require.NoError(collect, err)
		assert.Len(collect, got, 1)
	}, patience, period, "the API server learns of the policy")
	return s
}

// ask returns the slots of keys as computed by the API server.
func (s *slotter) ask(ctx context.Context, keys []string) (map[string]string, error) {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "keys"}, Data: map[string]string{}}
	for i, key := range keys {
		object.Data[strconv.Itoa(i)] = key
	}
	err := s.client.Create(ctx, object, client.DryRunAll)
	return object.Annotations, err
}

func (s *slotter) compare(t *testing.T, keys []string) {
	t.Helper()
	got, err := s.ask(t.Context(), keys)
	require.NoError(t, err)
	require.Len(t, got, len(keys))
	for i, key := range keys {
		require.Equal(t, strconv.Itoa(slots.Slot(key)), got[strconv.Itoa(i)], "of %q", key)
	}
}
