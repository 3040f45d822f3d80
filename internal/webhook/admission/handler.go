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
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/records"
	"nodekeeper.dev/internal/service/settings"
)

// kubelets is the group of all kubelets (NodesGroup in k8s.io/apiserver/pkg/authentication/user).
const kubelets = "system:nodes"

// maxBehind is the maximum staleness of the cache. With an older cache every answer is uncertain,
// and the webhook is not ready.
const maxBehind = 30 * time.Second

// answerTimeout bounds the wait for the cache to sync. It leaves most of the second for which the
// API server waits for an answer.
const answerTimeout = 300 * time.Millisecond

// Records reads records from a cache, which may be stale. Cached returns the zero value if a node
// has no record.
type Records interface {
	Cached(ctx context.Context, node string) (records.Stored, error)
}

// Processors compares the flags of the processors.
type Processors interface {
	// Differing returns the names of the flags whose values differ between the webhook and a
	// processor.
	Differing(ctx context.Context) ([]string, error)
}

var _ Processors = (*Peers)(nil)

// Handler answers requests that create Nodes. All fields except HeldBack and Gate are required. It
// is safe for concurrent use.
type Handler struct {
	Records Records
	// Processors reports whether the processors have the same View and Policy. While they do not,
	// every answer is uncertain; if the node selector differs, Nodes are left as requested.
	Processors Processors
	// View selects the relevant parts of a Node, and Policy determines the labels that a restore
	// writes.
	View   nodeview.View
	Policy labels.Policy
	// HeldBack selects keys of labels and annotations that the webhook leaves to the processors. The
	// zero value selects none.
	HeldBack labels.Patterns
	// Gate adds the startup taint to every Node that has a record, see [nodeview.StartupTaintKey].
	Gate bool
	// Behind returns the maximum staleness of the cache. It must be safe for concurrent use.
	Behind  func() time.Duration
	Metrics *Metrics

	repeats repeats
}

var _ admission.Handler = (*Handler)(nil)

// errStale means that the cache is too stale for an answer.
var errStale = errors.New("the cache of the records is behind")

// Handle answers a request that creates a Node. Every answer allows the request. The patch of an
// uncertain answer adds only the startup taint and the marker [labels.Pending], and a warning gives
// the reason. If the request cannot be read, or the answer panics, there is a warning and no patch.
// Dry runs are not counted in the metrics.
func (h *Handler) Handle(ctx context.Context, req admission.Request) (response admission.Response) {
	begun, outcome := time.Now(), failed
	defer func() {
		if broken := recover(); broken != nil {
			logf.FromContext(ctx).Error(fmt.Errorf("panic: %v", broken), "Failed to answer", "node", req.Name)
			response = admission.Allowed("").WithWarnings("nodekeeper: this node gets its labels later: an internal error")
		}
		if !isDryRun(req) {
			h.Metrics.observe(outcome, time.Since(begun))
		}
	}()
	response, outcome = h.answer(ctx, req)
	return response
}

// Ready is a readiness check. It fails if the cache is too stale.
func (h *Handler) Ready(*http.Request) error {
	if behind := h.Behind(); behind > maxBehind {
		return fmt.Errorf("%w by %s: check the log for failing watches", errStale, behind.Round(time.Second))
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
	c := h.requested(node)
	if c.seen.Unselected {
		return admission.Allowed("nodekeeper does not select this node"), untouched
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	differing, err := h.Processors.Differing(ctx)
	if slices.Contains(differing, settings.NodeSelector) { // possibly no processor would open the gate
		err = differs(differing)
		logf.FromContext(ctx).Error(err, "Left a Node as requested", "node", node.Name)
		return admission.Allowed("").WithWarnings("nodekeeper: this node gets its labels later: " + err.Error()), failed
	}
	var answer preserve.Admission
	if err = cmp.Or(err, differs(differing)); err == nil {
		answer, err = h.admit(ctx, c, req)
	}
	if err == nil && answer.Restores() {
		c.change(c.node, c.seen, answer.Labels, answer.Marker)
		if err = c.validate(); err == nil && !h.View.Selects(c.labels) {
			// Watchers would ignore the Node, so its gate would stay closed.
			return admission.Allowed("nodekeeper does not select this node with its saved labels"), untouched
		}
	}
	if err != nil {
		logf.FromContext(ctx).Error(err, "Answered without a record", "node", node.Name)
		c.patches = patches{}
		c.change(c.node, c.seen, c.seen.Labels, labels.Pending)
		return c.response().WithWarnings("nodekeeper: this node gets its labels later: " + err.Error()), uncertain
	}
	if !answer.Restores() {
		return admission.Allowed(answer.Reason), untouched
	}
	logf.FromContext(ctx).V(1).Info("Admitted a returned node",
		"node", node.Name, "version", answer.Marker, "held", answer.Held, "gated", answer.Gated())
	return c.response(), h.Metrics.restored(answer)
}

// admit decides about a request, given the cached record. If it has given the same answer before,
// it leaves everything to the processors, whom a policy that refuses a label does not stop.
func (h *Handler) admit(ctx context.Context, c *creation, req admission.Request) (preserve.Admission, error) {
	if h.Behind() > maxBehind {
		return preserve.Admission{}, errStale
	}
	stored, err := h.Records.Cached(ctx, c.node.Name)
	if err != nil {
		return preserve.Admission{}, err //nolint:wrapcheck // the error already names the operation
	}
	if stored.Unreadable != nil {
		return preserve.Admission{}, stored.Unreadable
	}
	answer := preserve.Admit(stored.Record, preserve.Request{Node: *c.seen, Kubelet: isKubelet(req.UserInfo), HeldBack: h.HeldBack, Gate: h.Gate}, h.Policy)
	if !answer.Restores() || isDryRun(req) {
		return answer, nil
	}
	if changed := labels.Differing(c.seen.Labels, answer.Labels); len(changed) > 0 && h.repeats.has(c.node.Name, stored.Record.Revision) {
		logf.FromContext(ctx).Info("Left the labels of a Node to the processors, since the API server may have refused them", "node", c.node.Name)
		answer.Held = answer.Held.Union(labels.KeysOf(slices.Values(changed)))
		answer.Labels, answer.Marker = c.seen.Labels, labels.Pending
	}
	return answer, nil
}

func isDryRun(req admission.Request) bool { return req.DryRun != nil && *req.DryRun }

// requested returns the Node of a request, together with its view.
func (h *Handler) requested(node *corev1.Node) *creation {
	return &creation{node: node, seen: h.View.OfWhole(node.DeepCopy(), time.Now())}
}

func isKubelet(user authenticationv1.UserInfo) bool { return slices.Contains(user.Groups, kubelets) }

// creation is the Node of a request, and the changes to it.
type creation struct {
	node *corev1.Node
	seen *nodeview.Node
	patches
}
