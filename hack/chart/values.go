package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nodekeeper.dev/hack/manifests"
)

// markers are placeholders in an object for the parts of a template that come from the values. They
// are YAML words, so the object remains valid YAML, and the encoder sorts them last where they are
// keys.
type markers struct{ templates []string }

// of returns the marker for a piece of template: an expression within a line, or lines that replace
// a line.
func (m *markers) of(template string) string {
	i := slices.Index(m.templates, template)
	if i < 0 {
		i = len(m.templates)
		m.templates = append(m.templates, template)
	}
	return fmt.Sprintf("zz-marker-%d-", i)
}

// Pieces of template that replace whole lines. nindent +2 indents by two more than the replaced
// line; PROGRAM stands for the program of the Deployment.
const (
	labels = `{{- include "nodekeeper.labels" . | nindent +0 }}`
	args   = `{{- with include "nodekeeper.args" (list . "PROGRAM") }}
{{- . | nindent +0 }}
{{- end }}`
	tolerations = `{{- with .Values.tolerations }}
{{- toYaml . | nindent +0 }}
{{- end }}`
	ports = `{{- range .Values.networkPolicy.apiServerPorts }}
- port: {{ . }}
  protocol: TCP
{{- end }}`
	nodeSelector = `{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent +2 }}
{{- end }}`
	pullSecrets = `{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent +2 }}
{{- end }}`
	podAnnotations = `{{- with .Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent +2 }}
{{- end }}`
	resources = `{{- with .Values.PROGRAM.resources }}
resources:
  {{- toYaml . | nindent +2 }}
{{- end }}`
)

// mark inserts the markers into an object.
func (m *markers) mark(obj manifests.Object) error {
	set := func(value any, fields ...string) error {
		return unstructured.SetNestedField(obj.Object, value, fields...)
	}
	if err := set("", "metadata", "labels", m.of(labels)); err != nil {
		return err
	}
	switch obj.GetKind() {
	case "Namespace":
		return set("keep", "metadata", "annotations", "helm.sh/resource-policy")
	case "Deployment":
		return m.markDeployment(obj)
	case "NetworkPolicy":
		rules, found, err := unstructured.NestedSlice(obj.Object, "spec", "egress")
		if err != nil || !found || len(rules) != 1 {
			return fmt.Errorf("it has not one rule of egress (%w)", err)
		}
		if err := appendTo(rules[0], m.of(ports), "ports"); err != nil {
			return err
		}
		return set(rules, "spec", "egress")
	}
	return nil
}

func (m *markers) markDeployment(obj manifests.Object) error {
	program := obj.GetName()
	line := func(template string) string { return m.of(strings.ReplaceAll(template, "PROGRAM", program)) }
	pod := []string{"spec", "template", "spec"}
	containers, found, err := unstructured.NestedSlice(obj.Object, append(pod, "containers")...)
	if err != nil || !found || len(containers) != 1 {
		return fmt.Errorf("it has not one container (%w)", err)
	}
	container, isMap := containers[0].(map[string]any)
	if !isMap {
		return fmt.Errorf("its container is a %T", containers[0])
	}
	container["image"] = line(`{{ include "nodekeeper.image" (list . "PROGRAM") }}`)
	container["imagePullPolicy"] = m.of(`{{ .Values.image.pullPolicy }}`)
	delete(container, "resources")
	container[line(resources)] = ""
	given, isList := container["args"].([]any)
	if !isList {
		return errors.New("it has no args")
	}
	for i, arg := range given {
		if arg == "--retention=720h" {
			given[i] = "--retention=" + m.of(`{{ .Values.retention.period }}`)
		}
	}
	if err := appendTo(container, line(args), "args"); err != nil {
		return err
	}
	spec, _, err := unstructured.NestedMap(obj.Object, pod...)
	if err != nil {
		return err
	}
	spec["containers"] = containers
	spec[m.of(nodeSelector)] = ""
	spec[m.of(pullSecrets)] = ""
	if err := appendTo(spec, m.of(tolerations), "tolerations"); err != nil {
		return err
	}
	for _, one := range []struct {
		value  any
		fields []string
	}{
		{line(`{{ .Values.PROGRAM.replicas }}`), []string{"spec", "replicas"}},
		{"", []string{"spec", "template", "metadata", m.of(podAnnotations)}},
		{spec, pod},
	} {
		if err := unstructured.SetNestedField(obj.Object, one.value, one.fields...); err != nil {
			return err
		}
	}
	return nil
}

// appendTo appends to an existing list.
func appendTo(object any, value string, field string) error {
	fields, isMap := object.(map[string]any)
	if !isMap {
		return fmt.Errorf("there is no %s", field)
	}
	list, isList := fields[field].([]any)
	if !isList {
		return fmt.Errorf("%s is no list", field)
	}
	fields[field] = append(list, value)
	return nil
}

// namespaces are the names that the values replace everywhere: in namespaces, flags, expressions
// and addresses.
var namespaces = map[string]string{
	"nodekeeper-system":          ".Release.Namespace",
	"node-metadata-transactions": ".Values.namespaces.transactions",
	"node-metadata":              ".Values.namespaces.records",
}

var (
	markedLine = regexp.MustCompile(`^( *)(?:- zz-marker-(\d+)-|zz-marker-(\d+)-: "")$`)
	marked     = regexp.MustCompile(`zz-marker-(\d+)-`)
	indented   = regexp.MustCompile(`nindent \+(\d+)`)
	word       = regexp.MustCompile(`[A-Za-z0-9-]+`)
	whole      = regexp.MustCompile(`^( *(?:- )?(?:[A-Za-z0-9./-]+: )?)([a-z-]+)$`)
)

// raw begins a line that already belongs to a template. YAML text never contains this character.
const raw = "\x00"

// resolve returns the template lines for a line of an object.
func (m *markers) resolve(line string) []string {
	if rest, found := strings.CutPrefix(line, raw); found {
		return []string{rest}
	}
	if found := markedLine.FindStringSubmatch(line); found != nil {
		var lines []string
		for one := range strings.SplitSeq(m.template(found[2]+found[3]), "\n") {
			lines = append(lines, found[1]+indented.ReplaceAllStringFunc(one, func(more string) string {
				n, _ := strconv.Atoi(indented.FindStringSubmatch(more)[1])
				return fmt.Sprintf("nindent %d", len(found[1])+n)
			}))
		}
		return lines
	}
	line = strings.ReplaceAll(line, "{{", `{{ "{{" }}`)
	if found := whole.FindStringSubmatch(line); found != nil && namespaces[found[2]] != "" {
		return []string{found[1] + "{{ " + namespaces[found[2]] + " | quote }}"} // it could be a number
	}
	line = word.ReplaceAllStringFunc(line, func(one string) string {
		if expression := namespaces[one]; expression != "" {
			return "{{ " + expression + " }}"
		}
		return one
	})
	return []string{marked.ReplaceAllStringFunc(line, func(one string) string {
		return m.template(marked.FindStringSubmatch(one)[1])
	})}
}

func (m *markers) template(number string) string {
	i, _ := strconv.Atoi(number) // it consists of digits
	return m.templates[i]
}
