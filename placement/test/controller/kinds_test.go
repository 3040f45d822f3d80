package controller_test

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/placement/test/queues"
)

// The kinds of the tests besides Queue, by what their statuses can store.
var (
	// trigger has the status of Knative: annotations, and conditions of another form.
	trigger = kindNamed("Trigger")
	// plain has nothing but annotations in its status.
	plain = kindNamed("Plain")
	// narrow has the fields of the proposal, which are not enough.
	narrow = kindNamed("Narrow")
	// heavy is a Queue with a weight and a maximum.
	heavy = kindNamed("Heavy")
)

// prefix is the prefix of annotations.
const prefix = "kafka.eventing.knative.dev"

func kindNamed(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "test.example.com", Version: "v1", Kind: kind}
}

// statuses are the schemas of the statuses.
var statuses = map[schema.GroupVersionKind]string{
	trigger: `{annotations: {type: object, additionalProperties: {type: string}}, observedGeneration: {type: integer, format: int64}, conditions: {type: array, items: {type: object,
		required: [type, status], properties: {type: {type: string}, status: {type: string}, severity: {type: string}, reason: {type: string}, message: {type: string}, lastTransitionTime: {type: string}}}}}`,
	plain: `{annotations: {type: object, additionalProperties: {type: string}}}`,
	narrow: `{placements: {type: array, items: {type: object, properties: {podName: {type: string}, vreplicas: {type: integer}}}}, observedGeneration: {type: integer},
		conditions: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}}}`,
}

const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]ss.test.example.com}
spec:
  group: test.example.com
  scope: Namespaced
  names: {kind: %[1]s, listKind: %[1]sList, plural: %[2]ss, singular: %[2]s}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}, status: %[3]s}}}
`

// install installs all kinds.
func install(ctx context.Context, cfg *rest.Config) error {
	if err := queues.Install(ctx, cfg); err != nil {
		return err
	}
	for _, kind := range []schema.GroupVersionKind{trigger, plain, narrow, heavy} {
		status := "{type: object, x-kubernetes-preserve-unknown-fields: true}"
		if fields := statuses[kind]; fields != "" {
			status = "{type: object, properties: " + strings.ReplaceAll(fields, "\t", "") + "}"
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(fmt.Appendf(nil, crd, kind.Kind, strings.ToLower(kind.Kind), status), object); err != nil {
			return err
		}
		if err := queues.Serve(ctx, cfg, object, kind); err != nil {
			return err
		}
	}
	return nil
}

// newObject returns an object that is not created yet.
func (w *world) newObject(kind schema.GroupVersionKind, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(w.namespace)
	o.SetName(name)
	return o
}
