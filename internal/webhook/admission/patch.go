package admission

import (
	"maps"
	"slices"
	"strconv"
	"time"

	jsonpatch "gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
)

// patches are the changes to a Node, as a JSON patch (RFC 6902). The zero value changes nothing.
type patches struct {
	list []jsonpatch.Operation
	// ownLabels, ownAnnotations and ownsTaints are the fields that the webhook sets, named as in
	// managedFields.
	ownLabels, ownAnnotations map[string]struct{}
	ownsTaints                bool
	// labels and annotations are the resulting labels and annotations of the Node.
	labels, annotations map[string]string
}

// change sets the wanted labels and the marker. It removes other labels of the view, and keeps
// labels and annotations outside the view. Call it once.
func (p *patches) change(node *corev1.Node, seen *nodeview.Node, wanted map[string]string, marker string) {
	former := p.formerlyOwned(node)
	d := labels.ChangesBetween(seen.Labels, wanted)
	d.Labels[labels.Marker] = &marker
	p.labels = p.entries("/metadata/labels", node.Labels, d.Labels, p.ownLabels)
	p.annotations = p.entries("/metadata/annotations", node.Annotations, d.Annotations, p.ownAnnotations)
	if marker == labels.Pending && !slices.ContainsFunc(node.Spec.Taints, nodeview.IsStartupTaint) {
		p.add("add", "/spec/taints", append(slices.Clone(node.Spec.Taints), nodeview.StartupTaint()))
		p.ownsTaints = true
	}
	p.own(node, former)
}

// formerlyOwned initializes the owned fields with the fields that the webhook set when it handled
// the Node before, or another Node that a manifest was copied from. It returns the index of their
// entry in managedFields, or -1 if there is none; the API server keeps one entry per manager and
// operation.
func (p *patches) formerlyOwned(node *corev1.Node) (at int) {
	at, owned := agents.OwnedByWebhook(node.ManagedFields)
	p.ownLabels, p.ownAnnotations, p.ownsTaints = map[string]struct{}{}, map[string]struct{}{}, owned[agents.AllTaints]
	for key := range owned {
		annotation, isAnnotation := labels.AsAnnotation(key)
		switch {
		case isAnnotation:
			p.ownAnnotations["f:"+annotation] = struct{}{}
		case key != agents.AllTaints:
			p.ownLabels["f:"+key] = struct{}{}
		}
	}
	return at
}

// entries changes entries of a map of the Node; a nil value removes an entry. It adds the keys that
// it sets to set, and returns the resulting map.
func (p *patches) entries(path string, before map[string]string, changes map[string]*string, set map[string]struct{}) map[string]string {
	after := maps.Clone(before)
	if after == nil {
		after = map[string]string{}
	}
	if len(changes) > 0 && before == nil {
		p.add("add", path, map[string]string{})
	}
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		at := labels.Pointer(path, key)
		value := changes[key]
		switch _, isThere := before[key]; {
		case value != nil:
			p.add("add", at, *value) // replaces an existing entry
			set["f:"+key], after[key] = struct{}{}, *value
		case isThere:
			p.add("remove", at, nil)
			delete(after, key)
		}
	}
	return after
}

// own adds an entry to managedFields for the fields that the webhook sets, or replaces the former
// one. It copies the time of the creator's entry, which the API server has set, so that the clock
// of the webhook does not matter. If a Node is created without any field but its name, it has no
// entries, and the API server would never track its fields; with the entry of the webhook it does.
func (p *patches) own(node *corev1.Node, former int) {
	at := metav1.NewTime(time.Now())
	if len(node.ManagedFields) == 0 {
		p.add("add", "/metadata/managedFields", []any{})
	} else if created := node.ManagedFields[0].Time; created != nil {
		at = *created
	}
	metadata := map[string]any{"f:labels": p.ownLabels}
	if len(p.ownAnnotations) > 0 {
		metadata["f:annotations"] = p.ownAnnotations
	}
	fields := map[string]any{"f:metadata": metadata}
	if p.ownsTaints {
		fields["f:spec"] = map[string]any{"f:taints": struct{}{}}
	}
	operation, path := "add", "/metadata/managedFields/-"
	if former >= 0 {
		operation, path = "replace", "/metadata/managedFields/"+strconv.Itoa(former)
	}
	p.add(operation, path, map[string]any{
		"manager": agents.Webhook, "operation": metav1.ManagedFieldsOperationUpdate, "apiVersion": "v1", "time": at, "fieldsType": "FieldsV1", "fieldsV1": fields,
	})
}

func (p *patches) add(operation, path string, value any) {
	p.list = append(p.list, jsonpatch.NewOperation(operation, path, value))
}

// response returns a response that allows the request with these changes.
func (p *patches) response() admission.Response { return admission.Patched("", p.list...) }
