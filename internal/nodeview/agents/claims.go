package agents

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
)

// claims are the keys that a controller has noted in an annotation of the Node as its own. It
// removes those that it no longer wants, but only while the annotation names them.
type claims struct {
	// These it sets to its values again whoever changes them. The key of a taint without an effect
	// stands for its taints with any effect, see [labels.TaintKey].
	labels, annotations, taints []string
	// noted are the values of labels and taints, which it sets only when the Node is registered. They
	// are its own only while the Node has these values: a person has chosen any other.
	noted map[string]string
}

// claimReaders parse the annotations in which controllers note what they own: Talos, Cluster API,
// Node Feature Discovery, GKE, Gardener, Deckhouse and a cloud controller manager for Hetzner.
// docs/explanation/labels.md has the sources. Omit controllers that set a label only once, or only
// when a Node is registered without noting the values.
var claimReaders = map[string]func(value string) claims{
	"talos.dev/owned-labels":                                   func(value string) claims { return claims{labels: listed(value)} },
	"talos.dev/owned-annotations":                              func(value string) claims { return claims{annotations: listed(value)} },
	"talos.dev/owned-taints":                                   func(value string) claims { return claims{taints: taintKeys(listed(value))} },
	"cluster.x-k8s.io/labels-from-machine":                     func(value string) claims { return claims{labels: listed(value)} },
	"cluster.x-k8s.io/annotations-from-machine":                func(value string) claims { return claims{annotations: listed(value)} },
	"cluster.x-k8s.io/taints-from-machine":                     func(value string) claims { return claims{taints: taintKeys(listed(value))} },
	"nfd.node.kubernetes.io/feature-labels":                    func(value string) claims { return claims{labels: featureLabels(listed(value))} },
	"nfd.node.kubernetes.io/taints":                            func(value string) claims { return claims{taints: taintKeys(listed(value))} },
	"node.gke.io/last-applied-node-labels":                     func(value string) claims { return claims{noted: labelPairs(listed(value))} },
	"node.gke.io/last-applied-node-taints":                     func(value string) claims { return claims{noted: taintPairs(listed(value))} },
	"node.machine.sapcloud.io/last-applied-anno-labels-taints": lastApplied,
	"node-manager.deckhouse.io/last-applied-node-template":     lastApplied,
	"node.deckhouse.io/last-applied-node-template":             lastApplied,
	"ccm.hetzner.com/last-applied-labels":                      func(value string) claims { return claims{labels: keysOfObject(value)} },
}

// switches are the prefixes of labels that turn the programs of an operator on a machine on and off.
// The value shows who has set such a label, see [isOperators].
var switches = []string{"nvidia.com/gpu.deploy.", "rebellions.ai/npu.deploy."}

// isOperators reports whether a label is a switch that an operator sets. The programs that unload
// the driver of a machine change "true" to "paused-for-" and a reason, and back, with field managers
// that people have, too. People turn a program off with "false", which these programs respect:
// maybeSetPaused in https://github.com/NVIDIA/k8s-driver-manager and
// https://github.com/NVIDIA/mig-parted.
func isOperators(key, value string) bool {
	if value != "true" && !strings.HasPrefix(value, "paused-for-") {
		return false
	}
	return slices.ContainsFunc(switches, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// claimed returns the keys that controllers claim in the annotations of a Node, and the switches
// that they have set. The key of a noted value is false if the Node does not have that value.
// Anyone who may patch the Node can write these, so restricted labels are never claimed. The
// annotations themselves are claimed as well: they are kept, or not, with the labels that they
// name.
func claimed(n *metav1.ObjectMeta) map[string]bool {
	var keys map[string]bool
	add := func(key string, isOwn bool) {
		if _, err := labels.ParseKeys(key); err != nil || strings.Contains(key, ",") {
			return // no object has such a key
		}
		if keys == nil {
			keys = map[string]bool{}
		}
		keys[key] = isOwn || keys[key]
	}
	for key, value := range n.Labels {
		if isOperators(key, value) {
			add(key, true)
		}
	}
	for annotation, value := range n.Annotations {
		read := claimReaders[annotation]
		if read == nil {
			continue
		}
		add(labels.AnnotationKey(annotation), true)
		c := read(value)
		for _, key := range c.labels {
			if labels.IsLabel(key) && !labels.Restricted(key) {
				add(key, true)
			}
		}
		for _, key := range c.annotations {
			add(labels.AnnotationKey(key), true)
		}
		for _, key := range c.taints {
			add(key, true)
		}
		for key, noted := range c.noted {
			if current, isThere := n.Labels[key]; !labels.Restricted(key) {
				add(key, isThere && current == noted)
			}
		}
	}
	return keys
}

// isClaimed reports whether a label, an annotation or a taint is the controllers' by what [claimed]
// has returned.
func isClaimed(claimed map[string]bool, key string) bool {
	return len(claimed) > 0 && (claimed[key] || claimed[anyEffect(key)])
}

// anyEffect returns the key that stands for the taints of the same key with any effect, and keys of
// labels and annotations as they are.
func anyEffect(key string) string {
	if taint, _, ok := labels.AsTaint(key); ok {
		return labels.TaintKey(taint, "")
	}
	return key
}

// listed returns the items of a JSON list, or of a list that is separated by commas. Unreadable
// text claims nothing.
func listed(value string) []string {
	var items []string
	if value = strings.TrimSpace(value); strings.HasPrefix(value, "[") {
		if json.Unmarshal([]byte(value), &items) != nil {
			return nil
		}
		return items
	}
	for item := range strings.SplitSeq(value, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// labelPairs returns the values of labels in the form key=value.
func labelPairs(items []string) map[string]string {
	values := make(map[string]string, len(items))
	for _, item := range items {
		if key, value, _ := strings.Cut(item, "="); labels.IsLabel(key) {
			values[key] = value
		}
	}
	return values
}

// taintPairs returns the values of taints in the form key=value:effect, in which the value is
// optional. Their keys include the effect.
func taintPairs(items []string) map[string]string {
	values := make(map[string]string, len(items))
	for _, item := range items {
		key, value := parseTaint(item)
		values[key] = value
	}
	return values
}

// taintKeys returns the keys of taints in the form key=value:effect, in which value and effect are
// optional.
func taintKeys(items []string) []string {
	for i, item := range items {
		items[i], _ = parseTaint(item)
	}
	return items
}

func parseTaint(item string) (key, value string) {
	pair, effect, _ := strings.Cut(item, ":")
	taint, value, _ := strings.Cut(pair, "=")
	return labels.TaintKey(taint, effect), value
}

// featureLabels adds the namespace of Node Feature Discovery to labels without one.
func featureLabels(keys []string) []string {
	for i, key := range keys {
		if !strings.Contains(key, "/") {
			keys[i] = "feature.node.kubernetes.io/" + key
		}
	}
	return keys
}

// template is what a controller has applied to a Node: labels, annotations and taints.
type template struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	Taints      []struct {
		Key    string `json:"key"`
		Effect string `json:"effect"`
	} `json:"taints"`
}

// lastApplied reads a template, or one in the form of a Node, as Gardener has it. Unreadable text
// claims nothing.
func lastApplied(value string) claims {
	var applied struct {
		template

		Metadata template `json:"metadata"`
		Spec     template `json:"spec"`
	}
	if json.Unmarshal([]byte(value), &applied) != nil {
		return claims{}
	}
	var c claims
	for _, part := range []template{applied.template, applied.Metadata, applied.Spec} {
		c.labels = slices.AppendSeq(c.labels, maps.Keys(part.Labels))
		c.annotations = slices.AppendSeq(c.annotations, maps.Keys(part.Annotations))
		for _, taint := range part.Taints {
			c.taints = append(c.taints, labels.TaintKey(taint.Key, taint.Effect))
		}
	}
	return c
}

// keysOfObject returns the keys of a JSON object of strings.
func keysOfObject(value string) []string {
	var object map[string]string
	if json.Unmarshal([]byte(value), &object) != nil {
		return nil
	}
	return slices.Collect(maps.Keys(object))
}
