package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/nodeview"
)

type set = map[string]string

func newNodes(t *testing.T) *nodes.Nodes {
	t.Helper()
	c, err := client.New(api.Config, client.Options{})
	require.NoError(t, err)
	return &nodes.Nodes{Client: c}
}

// create creates a Node, which is deleted at the end of the test, and returns it as read.
func create(t *testing.T, n *nodes.Nodes, own set) *nodeview.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + rand.String(8), Labels: own}}
	require.NoError(t, n.Client.Create(t.Context(), node))
	t.Cleanup(func() {
		assert.NoError(t, client.IgnoreNotFound(n.Client.Delete(context.WithoutCancel(t.Context()), node)))
	})
	read, err := n.Get(t.Context(), node.Name)
	require.NoError(t, err)
	return read
}

// to returns what a Node becomes, given its labels with the marker.
func to(all set) nodes.Wanted {
	own, marker := labels.Split(all)
	return nodes.Wanted{Labels: own, Marker: marker}
}

// everything returns the labels of a Node with the marker.
func everything(n *nodeview.Node) set {
	all := maps.Clone(n.Labels)
	if marker := n.MarkerValue(); marker != nil {
		all[labels.Marker] = *marker
	}
	return all
}

func TestRelabelSetsExactlyTheseLabels(t *testing.T) {
	n := newNodes(t)
	read := create(t, n, set{"stays": "1", "changes": "1", "goes": "1", "empty": ""})
	wanted := set{"stays": "1", "changes": "2", "comes": "", "empty": ""}
	after, err := n.Relabel(t.Context(), read, to(wanted), time.Now())
	require.NoError(t, err)
	assert.Equal(t, wanted, everything(after))
	assert.Equal(t, read.UID, after.UID)

	now, err := n.Get(t.Context(), read.Name)
	require.NoError(t, err)
	assert.Equal(t, after.Revision, now.Revision)
	assert.Equal(t, wanted, everything(now))
}

func TestWritesAreConditionalOnTheNodeRead(t *testing.T) {
	n := newNodes(t)
	for name, change := range map[string]func(t *testing.T, read *nodeview.Node){
		"it has changed": func(t *testing.T, read *nodeview.Node) {
			t.Helper()
			_, err := n.Relabel(t.Context(), read, to(set{"edited": "1"}), time.Now())
			require.NoError(t, err)
		},
		"it is gone": func(t *testing.T, read *nodeview.Node) {
			t.Helper()
			require.NoError(t, n.Client.Delete(t.Context(), nodes.Metadata(read.Name)))
		},
		"it is another incarnation": func(t *testing.T, read *nodeview.Node) {
			t.Helper()
			require.NoError(t, n.Client.Delete(t.Context(), nodes.Metadata(read.Name)))
			require.NoError(t, n.Client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: read.Name}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			read := create(t, n, set{"rack": "r1"})
			change(t, read)
			before, err := n.Get(t.Context(), read.Name)
			require.NoError(t, err)
			_, err = n.Relabel(t.Context(), read, to(set{"rack": "r2"}), time.Now())
			require.ErrorIs(t, err, nodes.ErrStale)
			after, err := n.Get(t.Context(), read.Name)
			require.NoError(t, err)
			if before != nil {
				before.Age = after.Age
			}
			assert.Equal(t, before, after)
		})
	}
}

// TestRelabelOfAChangedNode checks the second patch, after the Node has changed since it was read.
func TestRelabelOfAChangedNode(t *testing.T) {
	t.Parallel()
	n := newNodes(t)
	before := set{"rack": "r1", "goes": "1", "machine": "m1"}
	wanted := set{"rack": "r2", "comes/here": "1", "machine": "m1", labels.Marker: "7"}
	recently, longAgo := time.Now().Add(time.Hour), time.Now().Add(-time.Minute) // a slow machine must not make it long ago
	for name, tc := range map[string]struct {
		change  func(*corev1.Node)
		readAt  time.Time
		isStale bool
	}{
		"another annotation":            {func(n *corev1.Node) { n.Annotations = set{"other": "1"} }, recently, false},
		"an edited label that stays":    {func(n *corev1.Node) { n.Labels["machine"] = "m2" }, recently, false},
		"a label that was replaced":     {func(n *corev1.Node) { n.Labels["rack"] = "r3" }, recently, true},
		"a label that was to be added":  {func(n *corev1.Node) { n.Labels["comes/here"] = "1" }, recently, true},
		"a label that is missing":       {func(n *corev1.Node) { delete(n.Labels, "goes") }, recently, true},
		"another restore":               {func(n *corev1.Node) { n.Labels[labels.Marker] = "7" }, recently, true},
		"another annotation, long ago":  {func(n *corev1.Node) { n.Annotations = set{"other": "1"} }, longAgo, true},
		"no label is left":              {func(n *corev1.Node) { n.Labels = nil }, recently, true},
		"the identity that was missing": {func(n *corev1.Node) { n.Spec.ProviderID = "p" }, recently, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			name := create(t, n, before).Name
			read, err := n.Get(t.Context(), name)
			require.NoError(t, err)
			whole := &corev1.Node{}
			require.NoError(t, n.Client.Get(t.Context(), types.NamespacedName{Name: name}, whole))
			tc.change(whole)
			require.NoError(t, n.Client.Update(t.Context(), whole))

			after, err := n.Relabel(t.Context(), read, to(wanted), tc.readAt)
			require.NoError(t, n.Client.Get(t.Context(), types.NamespacedName{Name: name}, whole))
			if tc.isStale {
				require.ErrorIs(t, err, nodes.ErrStale)
				assert.NotEqual(t, "r2", whole.Labels["rack"], "nothing is written")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, whole.Labels, everything(after))
			expected := maps.Clone(wanted)
			expected["machine"] = whole.Labels["machine"]
			assert.Equal(t, expected, everything(after))
		})
	}
}

// TestRelabelOfANodeThatIsGatedAgain: without the marker, no processor would remove the startup
// taint that came back.
func TestRelabelOfANodeThatIsGatedAgain(t *testing.T) {
	t.Parallel()
	n := newNodes(t)
	name := create(t, n, set{labels.Marker: labels.Pending}).Name
	read, err := n.Get(t.Context(), name)
	require.NoError(t, err)
	gated := whole(t, n, name)
	gated.Spec.Taints = []corev1.Taint{nodeview.StartupTaint()}
	require.NoError(t, n.Client.Update(t.Context(), gated))

	_, err = n.Relabel(t.Context(), read, to(set{}), time.Now())
	require.ErrorIs(t, err, nodes.ErrStale)
	assert.Equal(t, labels.Pending, whole(t, n, name).Labels[labels.Marker])

	read, err = n.Get(t.Context(), name)
	require.NoError(t, err)
	_, err = n.Relabel(t.Context(), read, to(set{}), time.Now())
	require.NoError(t, err)
	opened := whole(t, n, name)
	assert.Empty(t, opened.Labels)
	assert.Empty(t, opened.Spec.Taints)
}

func TestRelabelOfAChangedNodeWithoutLabels(t *testing.T) {
	t.Parallel()
	n := newNodes(t)
	read := create(t, n, nil)
	whole := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: read.Name}}
	require.NoError(t, n.Client.Patch(t.Context(), whole, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"other":"1"}}}`))))
	after, err := n.Relabel(t.Context(), read, to(set{"rack": "r1", labels.Marker: "7"}), time.Now())
	require.NoError(t, err)
	assert.Equal(t, set{"rack": "r1", labels.Marker: "7"}, everything(after))
	_, err = n.Relabel(t.Context(), read, to(set{"rack": "r2", labels.Marker: "7"}), time.Now())
	require.ErrorIs(t, err, nodes.ErrStale, "the labels are others now")
}

func TestRefusedLabelOfAChangedNodeIsRefused(t *testing.T) {
	t.Parallel()
	n := newNodes(t)
	read := create(t, n, set{"rack": "r1"})
	whole := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: read.Name}}
	require.NoError(t, n.Client.Patch(t.Context(), whole, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"other":"1"}}}`))))
	some, err := n.GetMetadata(t.Context(), read.Name)
	require.NoError(t, err)
	_, err = n.Relabel(t.Context(), some, to(set{"rack": "r2"}), time.Now())
	require.ErrorContains(t, err, "only its metadata was read", "its taints would be lost")
	_, err = n.Relabel(t.Context(), read, to(set{"rack": "not a value"}), time.Now())
	assert.True(t, nodes.Refused(err), "%v", err)
}

// The API server refuses longer JSON patches, which is no refusal of a label.
func TestPatchOfTooManyLabelsWaitsForAnUnchangedNode(t *testing.T) {
	t.Parallel()
	n := newNodes(t)
	read := create(t, n, set{"rack": "r1"})
	whole := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: read.Name}}
	require.NoError(t, n.Client.Patch(t.Context(), whole, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"other":"1"}}}`))))
	wanted := set{}
	for i := range 5000 {
		wanted[fmt.Sprint("l", i)] = "v"
	}
	_, err := n.Relabel(t.Context(), read, to(wanted), time.Now())
	require.ErrorIs(t, err, nodes.ErrStale)
	read, err = n.Get(t.Context(), read.Name)
	require.NoError(t, err)
	after, err := n.Relabel(t.Context(), read, to(wanted), time.Now())
	require.NoError(t, err)
	assert.Equal(t, wanted, everything(after))
}

// refusing is a client whose patches an admission webhook refuses with 422 and a message only.
type refusing struct{ client.Client }

func (refusing) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid, Message: `admission webhook "policy.example.com" denied the request: no`}}
}

// busy is like refusing, with a Node whose status changes all the time.
type busy struct{ refusing }

func (b busy) Patch(ctx context.Context, node client.Object, p client.Patch, opts ...client.PatchOption) error {
	if p.Type() == types.MergePatchType {
		return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, node.GetName(), errors.New("it has changed"))
	}
	return b.refusing.Patch(ctx, node, p, opts...)
}

func TestRefusalWithoutCausesIsNoChangeOfTheNode(t *testing.T) {
	t.Parallel()
	n := newNodes(t)
	read := create(t, n, set{"rack": "r1"})
	inner := n.Client
	n.Client = busy{refusing{inner}}
	_, err := n.Relabel(t.Context(), read, to(set{"rack": "r2"}), time.Now())
	assert.True(t, nodes.Refused(err), "%v", err)
	n.Client = refusing{inner}
	_, err = n.Relabel(t.Context(), read, to(set{"rack": "r2"}), time.Now())
	assert.True(t, nodes.Refused(err), "%v", err)
	assert.True(t, nodes.Refused(n.Unprotect(t.Context(), read)))
}

// TestProtectChangedNode checks that only other finalizers are in the way of the finalizer.
func TestProtectChangedNode(t *testing.T) {
	t.Parallel()
	n := newNodes(t)
	read := create(t, n, set{"rack": "r1"})
	change := func(metadata string) *corev1.Node {
		whole := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: read.Name}}
		require.NoError(t, n.Client.Patch(context.WithoutCancel(t.Context()), whole, client.RawPatch(types.MergePatchType, []byte(`{"metadata":`+metadata+`}`))))
		return whole
	}
	t.Cleanup(func() { change(`{"finalizers":null}`) })
	change(`{"labels":{"rack":"r2"}}`)
	require.NoError(t, n.Protect(t.Context(), read))
	assert.Equal(t, []string{nodes.Finalizer}, change(`{}`).Finalizers)
	require.ErrorIs(t, n.Protect(t.Context(), read), nodes.ErrStale, "it has the finalizer")

	read, err := n.Get(t.Context(), read.Name)
	require.NoError(t, err)
	change(`{"labels":{"rack":"r3"}}`)
	require.ErrorIs(t, n.Unprotect(t.Context(), read), nodes.ErrStale, "a label has changed")
	read, err = n.Get(t.Context(), read.Name)
	require.NoError(t, err)
	require.NoError(t, n.Unprotect(t.Context(), read))
	assert.Empty(t, change(`{}`).Finalizers)
}

func TestMissingNodeIsNotAnError(t *testing.T) {
	n := newNodes(t)
	live := create(t, n, nil)
	absent, err := n.Get(t.Context(), "absent-"+rand.String(8))
	require.NoError(t, err)
	assert.Nil(t, absent)

	node, now, err := n.At(t.Context(), "absent-"+rand.String(8))
	require.NoError(t, err)
	assert.Nil(t, node)
	assert.False(t, now.IsZero())

	node, now, err = n.At(t.Context(), live.Name)
	require.NoError(t, err)
	assert.Equal(t, live.UID, node.UID)
	all, err := n.Now(t.Context())
	require.NoError(t, err)
	assert.False(t, now.After(all))
}

// The API server is asked by a user without the right.
func TestMissingRightIsNoRefusedContent(t *testing.T) {
	t.Parallel()
	read := create(t, newNodes(t), set{"rack": "r0"})
	unprivileged := rest.CopyConfig(api.Config)
	unprivileged.Impersonate.UserName = "unprivileged"
	c, err := client.New(unprivileged, client.Options{})
	require.NoError(t, err)
	n := &nodes.Nodes{Client: c}
	_, err = n.Relabel(t.Context(), read, to(map[string]string{"rack": "r1"}), time.Now())
	assert.True(t, nodes.LacksRight(err), "%v", err)
	_, err = n.Get(t.Context(), read.Name)
	assert.True(t, nodes.LacksRight(err), "%v", err)
	assert.True(t, nodes.LacksRight(fmt.Errorf("changing: %w", apierrors.NewUnauthorized("the token has expired"))))
	assert.False(t, nodes.LacksRight(apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n", errors.New("by policy"))))
	assert.False(t, nodes.LacksRight(nil))
	for code, reason := range map[int32]metav1.StatusReason{403: metav1.StatusReasonForbidden, 401: metav1.StatusReasonUnauthorized} {
		// The API server answers so if a webhook returns admission.Denied(err.Error()).
		relayed := &apierrors.StatusError{ErrStatus: metav1.Status{
			Code: code, Reason: reason,
			Message: `admission webhook "w.example.com" denied the request: pods "x" is forbidden: User "system:serviceaccount:w:w" cannot get resource "pods" in API group "" in the namespace "w"`,
		}}
		assert.False(t, nodes.LacksRight(fmt.Errorf("changing: %w", relayed)), "it is a right of the webhook")
		assert.True(t, nodes.Refused(relayed))
	}
}

func TestRefusedMeansRejectedContent(t *testing.T) {
	resource := schema.GroupResource{Resource: "nodes"}
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{apierrors.NewForbidden(resource, "n", errors.New("by policy")), true},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "n", nil), true},
		{fmt.Errorf("changing: %w", apierrors.NewBadRequest("no")), true},
		{apierrors.NewForbidden(resource, "n", errors.New(`User "a" cannot patch resource "nodes" in API group "" at the cluster scope`)), false},
		{apierrors.NewUnauthorized("the token has expired"), false},
		{apierrors.NewTooManyRequests("later", 1), false},
		{apierrors.NewInternalError(errors.New("a webhook is away")), false},
		{apierrors.NewServiceUnavailable("starting"), false},
		{errors.New("connection refused"), false},
		{nodes.ErrStale, false},
		{nil, false},
	} {
		assert.Equal(t, tc.want, nodes.Refused(tc.err), "%v", tc.err)
	}
}
