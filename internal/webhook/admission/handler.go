package admission

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/service/settings"
)

// kubelets is the group that the API server puts every kubelet into (NodesGroup in
// k8s.io/apiserver/pkg/authentication/user).
const kubelets = "system:nodes"

// maxBehind is how far the cache may be behind before its answers count as uncertain. A webhook
// that is further behind is not ready, either.
const maxBehind = 30 * time.Second

// answerTimeout bounds the wait for a cache that is not synced yet. It leaves most of the second
// that the API server waits for an answer.
const answerTimeout = 300 * time.Millisecond

// Records reads records from a cache that may be behind. Cached returns the zero value if a node
// has no record.
type Records interface {
	Cached(ctx context.Context, node string) (records.Stored, error)
}

// Processors say with which flags they restore.
type Processors interface {
	// Differing returns the names of the flags that the webhook shares with them and that differ.
	Differing(ctx context.Context) ([]string, error)
}

var _ Processors = (*Peers)(nil)

// Handler answers requests that create Nodes. All fields are required but HeldBack and Gate. It is
// safe for concurrent use.
type Handler struct {
	Records Records
	// Processors tell whether View and Policy are theirs. While they are not, every answer is
	// uncertain, but for nodes of which nobody knows whether they are looked after.
	Processors Processors
	// View selects the parts of a Node that count, and Policy determines what a restore writes.
	View   nodeview.View
	Policy labels.Policy
	// HeldBack are the keys of labels and annotations that the webhook leaves to the processors. The
	// zero value holds back none.
	HeldBack labels.Patterns
	// Gate gives the startup taint to every Node that has a record, see [nodeview.StartupTaintKey].
	Gate bool
	// Behind returns how far the cache may be behind. It must be safe for concurrent use.
	Behind  func() time.Duration
	Metrics *Metrics
}

var _ admission.Handler = (*Handler)(nil)

// errStale means that the cache is too far behind for an answer.
var errStale = errors.New("the cache of the records is behind")

// Handle answers a request that creates a Node. Every answer allows the request. The patch of an
// uncertain answer adds only the startup taint and the marker [labels.Pending], with a warning that
// gives the reason. If the request cannot be read, or the answer panics, there is a warning and no
// patch. Dry runs are not counted in the metrics.
func (h *Handler) Handle(ctx context.Context, req admission.Request) (response admission.Response) {
	begun, outcome := time.Now(), failed
	defer func() {
		if broken := recover(); broken != nil {
			logf.FromContext(ctx).Error(fmt.Errorf("panic: %v", broken), "Failed to answer", "node", req.Name)
			response = admission.Allowed("").WithWarnings("nodekeeper: this node gets its labels later: an internal error")
		}
		if req.DryRun == nil || !*req.DryRun {
			h.Metrics.observe(outcome, time.Since(begun))
		}
	}()
	response, outcome = h.answer(ctx, req)
	return response
}

// Ready is a readiness check. It fails with an error if the cache is too far behind to answer from.
func (h *Handler) Ready(*http.Request) error {
	if behind := h.Behind(); behind > maxBehind {
		return fmt.Errorf("%w by %s: see the log for watches that fail", errStale, behind.Round(time.Second))
	}
	return nil
}

func (h *Handler) answer(ctx context.Context, req admission.Request) (admission.Response, result) {
	if req.Operation != admissionv1.Create || req.SubResource != "" {
		return admission.Allowed("nodekeeper changes only Nodes that are created"), untouched
	}
	node := &corev1.Node{}
	if err := json.Unmarshal(req.Object.Raw, node); err != nil {
		logf.FromContext(ctx).Error(err, "Failed to read a Node", "node", req.Name)
		return admission.Allowed("").WithWarnings("nodekeeper: this node gets its labels later: it cannot be read"), failed
	}
	c, err := h.requested(node)
	if err != nil {
		logf.FromContext(ctx).Error(err, "Failed to view a Node", "node", req.Name)
		return admission.Allowed("").WithWarnings("nodekeeper: this node gets its labels later: " + err.Error()), failed
	}
	if c.seen.Unselected {
		return admission.Allowed("nodekeeper does not look after this node"), untouched
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	differing, err := h.Processors.Differing(ctx)
	if slices.Contains(differing, settings.NodeSelector) { // nobody might open the gate
		err = differs(differing)
		logf.FromContext(ctx).Error(err, "Left a Node as requested", "node", node.Name)
		return admission.Allowed("").WithWarnings("nodekeeper: this node gets its labels later: " + err.Error()), failed
	}
	var answer preserve.Admission
	if err = cmp.Or(err, differs(differing)); err == nil {
		answer, err = h.admit(ctx, c, isKubelet(req.UserInfo))
	}
	if err == nil && answer.Restores() {
		c.change(c.node, c.view, answer.Labels, answer.Marker)
		if err = c.validate(); err == nil && !h.selects(c.labels) {
			return admission.Allowed("nodekeeper does not look after this node with its saved labels"), untouched
		}
	}
	if err != nil {
		logf.FromContext(ctx).Error(err, "Answered without a record", "node", node.Name)
		c.patches = patches{}
		c.change(c.node, c.view, c.seen.Labels, labels.Pending)
		return c.response().WithWarnings("nodekeeper: this node gets its labels later: " + err.Error()), uncertain
	}
	if !answer.Restores() {
		return admission.Allowed(answer.Reason), untouched
	}
	logf.FromContext(ctx).V(1).Info("Admitted a returned node",
		"node", node.Name, "version", answer.Marker, "held", answer.Held, "gated", answer.Gated())
	return c.response(), h.Metrics.restored(answer)
}

// selects reports whether a Node with these labels is looked after. Watchers ignore a Node that is
// not, so nobody would open its gate.
func (h *Handler) selects(own map[string]string) bool {
	return h.View.Selector == nil || h.View.Selector.Matches(apilabels.Set(own))
}

// admit decides about a request by the record in the cache.
func (h *Handler) admit(ctx context.Context, c *creation, kubelet bool) (preserve.Admission, error) {
	if h.Behind() > maxBehind {
		return preserve.Admission{}, errStale
	}
	stored, err := h.Records.Cached(ctx, c.node.Name)
	if err != nil {
		return preserve.Admission{}, err //nolint:wrapcheck // it says what it was doing
	}
	if stored.Unreadable != nil {
		return preserve.Admission{}, stored.Unreadable
	}
	return preserve.Admit(stored.Record, preserve.Request{Node: *c.seen, Kubelet: kubelet, HeldBack: h.HeldBack, Gate: h.Gate}, h.Policy), nil
}

// requested returns a Node as it is requested, and as the view shows it.
func (h *Handler) requested(node *corev1.Node) (*creation, error) {
	metadata, err := h.View.Whole(node.DeepCopy())
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it was doing
	}
	identity.Note(metadata, identity.Of(node))
	return &creation{node: node, view: metadata, seen: preserve.NodeOf(metadata)}, nil
}

func isKubelet(user authenticationv1.UserInfo) bool { return slices.Contains(user.Groups, kubelets) }

// creation is a Node that is created, and the changes to it.
type creation struct {
	node *corev1.Node
	view *metav1.PartialObjectMetadata
	seen *preserve.Node
	patches
}
