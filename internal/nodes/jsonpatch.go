package nodes

import (
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// jsonPatch is a JSON patch (RFC 6902). The API server applies all of it or nothing. It applies it
// again by itself if the object changes in between.
type jsonPatch []operation

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

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

func (p *jsonPatch) patch() (client.Patch, error) {
	body, err := json.Marshal(p)
	return client.RawPatch(types.JSONPatchType, body), err
}

// isTestFailed reports whether a JSON patch does not fit the object. Like invalid content, that is
// answered by 422 Unprocessable Entity, but without a cause (applyJSPatch in
// k8s.io/apiserver/pkg/endpoints/handlers/patch.go).
func isTestFailed(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || len(details.Causes) == 0
}

// pointer escapes a key for a path of a JSON patch (RFC 6901).
func pointer(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

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

func valueOf(all map[string]string, key string) *string {
	if value, ok := all[key]; ok {
		return &value
	}
	return nil
}

// inOrder iterates over a map by its sorted keys.
func inOrder(all map[string]*string) iter.Seq2[string, *string] {
	return func(yield func(string, *string) bool) {
		for _, key := range slices.Sorted(maps.Keys(all)) {
			if !yield(key, all[key]) {
				return
			}
		}
	}
}
