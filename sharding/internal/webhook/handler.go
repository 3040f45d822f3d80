package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	jsonpatch "gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	utiljson "sigs.k8s.io/json"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/policy"
	"nodekeeper.dev/sharding/internal/ring"
)

// The results of answers in the metric.
const (
	changed   = "changed"
	unchanged = "unchanged"
	failed    = "failed"
)

// Handler answers the requests of the API server. It is safe for concurrent use.
type Handler struct {
	rings   *Rings
	dialect ring.Dialect
	answers *prometheus.CounterVec
	// assignments counts by ring, group, resource, and the component that assigned an object.
	assignments *prometheus.CounterVec
}

var _ http.Handler = (*Handler)(nil)

// New returns a handler for the paths of [policy.ParsePath]. It increments the counter of assignments,
// whose labels are ring, group, resource and by.
func New(rings *Rings, dialect ring.Dialect, assignments *prometheus.CounterVec) *Handler {
	return &Handler{rings: rings, dialect: dialect, assignments: assignments, answers: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sharder_webhook_answers_total",
		Help: "Answers of this replica to the API server, without dry runs, by action (assign, stick or acknowledge) and result: changed, unchanged or failed.",
	}, []string{"ring", "action", "result"})}
}

// Metrics returns the metric of the handler.
func (h *Handler) Metrics() prometheus.Collector { return h.answers }

// ServeHTTP answers a request. Every answer to a valid AdmissionReview allows the request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	of, revision, action, ok := policy.ParsePath(req.URL.Path)
	if !ok {
		http.NotFound(w, req)
		return
	}
	answer := func(ctx context.Context, review admission.Request) admission.Response {
		return h.handle(ctx, of, revision, action, review)
	}
	(&admission.Webhook{Handler: admission.HandlerFunc(answer)}).ServeHTTP(w, req)
}

// handle answers a review about an object of a ring.
func (h *Handler) handle(ctx context.Context, of, revision string, action policy.Action, review admission.Request) (response admission.Response) {
	var patch []jsonpatch.Operation
	var assigns bool
	err := errPanic
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("%w: %v", errPanic, broken)
		}
		response = h.response(ctx, of, patch, err)
		if errors.Is(err, errUnknown) {
			of = unknownRing
		}
		if review.DryRun == nil || !*review.DryRun {
			h.answers.WithLabelValues(of, string(action), result(patch, err)).Inc()
			if assigns {
				h.assignments.WithLabelValues(of, review.Resource.Group, review.Resource.Resource, "webhook").Inc()
			}
		}
	}()
	if isProbe(review) {
		patch, err = h.show(of, revision, review)
	} else {
		patch, assigns, err = h.decide(of, action, review)
	}
	return response
}

// unknownRing replaces the names of rings that do not exist in metrics: any pod can send a request with
// any name.
const unknownRing = "unknown"

var (
	errPanic   = errors.New("internal error")
	errUnknown = errors.New("this replica does not know the ring")
)

// response returns a response that allows the request with a patch, or with a warning if there is an
// error.
func (h *Handler) response(ctx context.Context, of string, patch []jsonpatch.Operation, err error) admission.Response {
	switch {
	case err != nil:
		if !errors.Is(err, errUnknown) {
			logf.FromContext(ctx).Error(err, "Failed to answer a request", "ring", of)
		}
		return admission.Allowed("").WithWarnings("sharder: ring " + of + " assigns this object later: " + err.Error())
	case len(patch) == 0:
		return admission.Allowed("")
	}
	return admission.Patched("", patch...)
}

func result(patch []jsonpatch.Operation, err error) string {
	switch {
	case err != nil:
		return failed
	case len(patch) == 0:
		return unchanged
	}
	return changed
}

// decide returns the patch of an object, and whether it assigns an object that had no shard.
func (h *Handler) decide(of string, action policy.Action, review admission.Request) (patch []jsonpatch.Operation, assigns bool, err error) {
	known := h.rings.of(of)
	if known == nil {
		return nil, false, errUnknown
	}
	if known.decider == nil {
		return nil, false, nil // the ring is being deleted
	}
	r := &policy.Request{
		Resource: v1alpha1.GroupResource{Group: review.Resource.Group, Resource: review.Resource.Resource},
		Kind:     schema.GroupKind{Group: review.Kind.Group, Kind: review.Kind.Kind},
		User:     review.UserInfo,
	}
	if r.Object, err = metadataOf(review.Object.Raw); err != nil {
		return nil, false, err
	}
	switch {
	case action == policy.Assign && review.Operation == admissionv1.Create:
		patch = known.decider.Assign(r)
	case action != policy.Assign && review.Operation == admissionv1.Update:
		if r.Old, err = metadataOf(review.OldObject.Raw); err != nil {
			return nil, false, err
		}
		patch = known.decider.Stick(r, action == policy.Acknowledge)
	}
	return patch, known.decider.Assigns(r, patch), nil
}

// metadataOf returns the metadata of an object that decisions depend on.
func metadataOf(raw []byte) (*metav1.ObjectMeta, error) {
	var o struct {
		Metadata struct {
			Name            string                  `json:"name"`
			Namespace       string                  `json:"namespace"`
			Labels          map[string]string       `json:"labels"`
			Annotations     map[string]string       `json:"annotations"`
			OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(raw, &o); err != nil { // custom resources can have a field Metadata, too
		return nil, fmt.Errorf("reading the metadata of the object: %w", err)
	}
	m := o.Metadata
	return &metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, Labels: m.Labels, Annotations: m.Annotations, OwnerReferences: m.OwnerReferences}, nil
}

// isProbe reports whether a review is a dry run that shows whether the API server calls the webhook.
func isProbe(review admission.Request) bool {
	return review.Resource.Group == v1alpha1.GroupName && review.Resource.Resource == policy.RingResource
}

// show returns the patch that replaces the shard label of a ring by the revision of the webhooks that
// the API server calls.
func (h *Handler) show(of, revision string, review admission.Request) ([]jsonpatch.Operation, error) {
	if h.rings.of(of) == nil {
		return nil, errUnknown
	}
	probe := &v1alpha1.ClusterRing{}
	if err := json.Unmarshal(review.Object.Raw, probe); err != nil {
		return nil, fmt.Errorf("reading a probe: %w", err)
	}
	label := h.dialect.PrefixOf(probe).ShardLabel(of)
	if _, ok := probe.Labels[label]; !ok || review.DryRun == nil || !*review.DryRun {
		return nil, nil
	}
	return []jsonpatch.Operation{jsonpatch.NewOperation("replace", policy.LabelPath(label), revision)}, nil
}
