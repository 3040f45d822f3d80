// Package poolconfig parses the file that configures the pools of the controller:
//
//	pools:
//	- name: worker
//	  namespace: shop
//	  capacity: 50
//	  kinds:
//	  - {apiVersion: example.com/v1, kind: Queue, replicasPath: spec.partitions, payloadPath: spec, statusPath: status}
//
// It is strict: an unknown key, a value of another type or a missing key is an error that names the
// path of the key.
package poolconfig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/controller"
	"nodekeeper.dev/placement/schedule"
)

// DefaultRebalance is the default of the key rebalance.
const DefaultRebalance = 10

// Parse parses the file. Any error is one line.
func Parse(content []byte) ([]controller.Pool, error) {
	if n := documents(content); n > 1 {
		return nil, fmt.Errorf("the pool config has %d YAML documents: put all pools into one", n)
	}
	text, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return nil, fmt.Errorf("the pool config is not valid YAML: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	var all any
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("the pool config is not valid: %w", err)
	}
	root := object(node{value: all})
	var pools []controller.Pool
	for _, n := range root.list("pools") {
		pools = append(pools, pool(n))
	}
	root.end()
	if len(*root.problems) > 0 {
		return nil, errors.New((*root.problems)[0])
	}
	return pools, validate(pools)
}

// documents returns the number of YAML documents that are not empty.
func documents(content []byte) (n int) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if err != nil { // the end
			return n
		}
		for line := range strings.Lines(string(document)) {
			if line = strings.TrimSpace(line); line != "" && line != "---" && line != "..." && !strings.HasPrefix(line, "#") {
				n++
				break
			}
		}
	}
}

// validate checks what concerns several pools.
func validate(pools []controller.Pool) error {
	if len(pools) == 0 {
		return errors.New("pools: at least one pool is required")
	}
	type key struct{ namespace, name string }
	type claim struct {
		namespace string
		kind      schema.GroupKind
	}
	names, kinds := map[key]int{}, map[claim]string{}
	for i := range pools {
		p := &pools[i]
		if other, ok := names[key{p.Namespace, p.Name}]; ok {
			return fmt.Errorf("pools[%d].name: pools[%d] has the same name and namespace", i, other)
		}
		names[key{p.Namespace, p.Name}] = i
		for j, k := range p.Kinds {
			here, of := fmt.Sprintf("pools[%d].kinds[%d]", i, j), claim{p.Namespace, k.GroupKind()}
			if other, ok := kinds[of]; ok {
				return fmt.Errorf("%s.kind: %s has the same kind in the same namespace", here, other)
			}
			kinds[of] = here
		}
	}
	return nil
}

func pool(n node) controller.Pool {
	o := object(n)
	p := controller.Pool{
		Name: o.text("name", ""), Namespace: o.text("namespace", ""),
		Capacity: o.number("capacity", 0), MaxReplicas: o.number("maxReplicas", placement.MaxReplicas), KeepEnded: controller.DefaultKeepEnded,
	}
	p.Strategy = schedule.Spread
	if o.choice("strategy", "Spread", "Pack") == "Pack" {
		p.Strategy = schedule.Pack
	}
	p.Overlap = o.choice("handover", "Exclusive", "Overlap") == "Overlap"
	if p.StatefulSet = o.text("statefulSet", ""); p.StatefulSet != "" {
		o.check("statefulSet", p.StatefulSet, func(value string) []string { return apivalidation.NameIsDNSSubdomain(value, false) })
	}
	if _, ok := o.left["patience"]; ok && p.StatefulSet == "" {
		o.problem("patience", "only the pods of a statefulSet return under their names")
	}
	if p.Patience = o.duration("patience", controller.DefaultPatience); p.StatefulSet == "" {
		p.Patience = 0 // no pod returns by its name
	}
	p.Tolerance, p.Rebalance = o.number("tolerance", 1), o.number("rebalance", DefaultRebalance)
	o.check("name", p.Name, validation.IsValidLabelValue)
	o.check("namespace", p.Namespace, func(value string) []string { return apivalidation.ValidateNamespaceName(value, false) })
	if p.MaxReplicas < 1 || p.MaxReplicas > placement.MaxReplicas {
		o.problem("maxReplicas", fmt.Sprintf("%d is not a number from 1 to %d", p.MaxReplicas, placement.MaxReplicas))
	}
	for _, k := range o.list("kinds") {
		p.Kinds = append(p.Kinds, kind(k))
	}
	if len(p.Kinds) == 0 {
		o.problem("kinds", "at least one kind is required")
	}
	o.end()
	return p
}

func kind(n node) controller.Kind {
	o := object(n)
	apiVersion, name := o.text("apiVersion", ""), o.text("kind", "")
	k := controller.Kind{
		ReplicasPath: o.fieldPath("replicasPath", ""), MaxPath: o.fieldPath("maxPath", ""), WeightPath: o.fieldPath("weightPath", ""),
		PayloadPath: o.fieldPath("payloadPath", ""), StatusPath: o.fieldPath("statusPath", "status"),
	}
	o.check("apiVersion", apiVersion, nil)
	o.check("kind", name, nil)
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		o.problem("apiVersion", err.Error())
	}
	k.GroupVersionKind = gv.WithKind(name)
	k.AnnotationPrefix = o.text("annotationPrefix", "")
	switch {
	case k.AnnotationPrefix == "" && len(k.ReplicasPath) == 0:
		o.problem("replicasPath", "it is required, or annotationPrefix")
	case k.AnnotationPrefix == "":
	case len(k.ReplicasPath) > 0:
		o.problem("replicasPath", "with annotationPrefix, the annotation replicas has the desired number")
	default:
		o.check("annotationPrefix", k.AnnotationPrefix, validation.IsDNS1123Subdomain)
	}
	if len(k.StatusPath) == 0 || k.StatusPath[0] != "status" {
		o.problem("statusPath", "it must begin with status")
	}
	o.end()
	return k
}

// node is a value in the file.
type node struct {
	path     string
	value    any
	problems *[]string // in the order in which they were found
}

// fields is an object in the file, whose keys are taken one by one.
type fields struct {
	node

	left map[string]any
}

func object(n node) *fields {
	if n.problems == nil {
		n.problems = &[]string{}
	}
	f := &fields{node: n}
	values, ok := n.value.(map[string]any)
	if !ok {
		f.problem("", "it must be an object")
	}
	f.left = values
	return f
}

// of returns the path of a key.
func (f *fields) of(key string) string { return strings.Trim(f.path+"."+key, ".") }

func (f *fields) problem(key, text string) {
	*f.problems = append(*f.problems, strings.TrimPrefix(f.of(key)+": "+text, ": "))
}

func (f *fields) take(key string) (value any, ok bool) {
	value, ok = f.left[key]
	delete(f.left, key)
	return value, ok
}

// end reports the keys that were not taken.
func (f *fields) end() {
	for _, key := range slices.Sorted(maps.Keys(f.left)) {
		f.problem(key, "unknown key")
	}
}

func (f *fields) text(key, otherwise string) string {
	value, ok := f.take(key)
	if !ok {
		return otherwise
	}
	text, ok := value.(string)
	if !ok {
		f.problem(key, "it must be a string")
	}
	return text
}

func (f *fields) number(key string, otherwise int32) int32 {
	value, ok := f.take(key)
	if !ok {
		return otherwise
	}
	n, ok := value.(float64)
	if !ok || n != math.Trunc(n) || n < 0 || n > math.MaxInt32 {
		f.problem(key, fmt.Sprintf("it must be a whole number from 0 to %d", math.MaxInt32))
		return otherwise
	}
	return int32(n)
}

// duration takes a duration, such as 30s.
func (f *fields) duration(key string, otherwise time.Duration) time.Duration {
	text := f.text(key, otherwise.String())
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		f.problem(key, fmt.Sprintf("%q is not a duration, for example 30s", text))
	}
	return d
}

// choice takes one of several texts. The first one is the default.
func (f *fields) choice(key string, choices ...string) string {
	value := f.text(key, choices[0])
	if !slices.Contains(choices, value) {
		f.problem(key, fmt.Sprintf("%q is not supported: choose from %s", value, strings.Join(choices, ", ")))
	}
	return value
}

// fieldPath takes the path of a field, such as spec.partitions. An empty text is no path.
func (f *fields) fieldPath(key, otherwise string) []string {
	text := f.text(key, otherwise)
	if text == "" {
		return nil
	}
	parts := strings.Split(text, ".")
	if slices.Contains(parts, "") {
		f.problem(key, "it must be the path of a field, for example spec.partitions")
	}
	return parts
}

func (f *fields) list(key string) []node {
	value, ok := f.take(key)
	if !ok {
		return nil
	}
	values, ok := value.([]any)
	if !ok {
		f.problem(key, "it must be a list")
	}
	var nodes []node
	for i, value := range values {
		nodes = append(nodes, node{fmt.Sprintf("%s[%d]", f.of(key), i), value, f.problems})
	}
	return nodes
}

// check reports that a required value is missing, or else the first of its problems.
func (f *fields) check(key, value string, problems func(string) []string) {
	if value == "" {
		f.problem(key, "it is required")
		return
	}
	if problems == nil {
		return
	}
	if found := problems(value); len(found) > 0 {
		f.problem(key, found[0])
	}
}
