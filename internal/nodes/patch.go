package nodes

import (
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mergePatch is a merge patch (RFC 7396).
type mergePatch map[string]any

var _ client.Patch = mergePatch{}

// Type implements [client.Patch].
func (mergePatch) Type() types.PatchType { return types.MergePatchType }

// Data implements [client.Patch].
func (p mergePatch) Data(client.Object) ([]byte, error) { return json.Marshal(p) }

// jsonPatch is a JSON patch (RFC 6902). The API server applies all of it or nothing. It applies it
// again by itself if the object changes in between.
type jsonPatch []operation

var _ client.Patch = jsonPatch{}

// maxOperations is the length of a JSON patch that the API server accepts (maxJSONPatchOperations in
// k8s.io/apiserver/pkg/endpoints/handlers/patch.go).
const maxOperations = 10000

// operation always has a value, because a test for null needs it. The type of
// gomodules.xyz/jsonpatch omits null.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Type implements [client.Patch].
func (jsonPatch) Type() types.PatchType { return types.JSONPatchType }

// Data implements [client.Patch].
func (p jsonPatch) Data(client.Object) ([]byte, error) { return json.Marshal(p) }

// test makes the patch fail unless path has this value; nil means that it is missing.
func (p *jsonPatch) test(path string, value any) { *p = append(*p, operation{"test", path, value}) }

// add sets the value at path, whether there is one or not.
func (p *jsonPatch) add(path string, value any) { *p = append(*p, operation{"add", path, value}) }

// replace turns one value into another if it is still the former; nil means that it is missing.
func (p *jsonPatch) replace(path string, from, to *string) {
	p.test(path, from)
	switch {
	case to != nil:
		p.add(path, *to)
	case from != nil:
		*p = append(*p, operation{"remove", path, nil})
	}
}

// isTestFailed reports whether a JSON patch does not fit the object. Like invalid content, that is
// answered by 422 Unprocessable Entity, but without a cause (applyJSPatch in
// k8s.io/apiserver/pkg/endpoints/handlers/patch.go). An admission webhook may answer so, too.
func isTestFailed(err error) bool {
	status, ok := StatusOf(err)
	if !ok || !apierrors.IsInvalid(err) || isOfWebhook(status) {
		return false
	}
	return status.Details == nil || len(status.Details.Causes) == 0
}

func orNull(value string) any {
	if value == "" {
		return nil
	}
	return value
}

func listOrNull[E any](list []E) any {
	if len(list) == 0 {
		return nil
	}
	return list
}
