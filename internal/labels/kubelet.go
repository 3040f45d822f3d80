package labels

import "strings"

// kubeletLabels are the patterns of [DefaultLive].
var kubeletLabels = mustParsePatterns(DefaultLive)

func mustParsePatterns(list string) Patterns {
	patterns, err := ParsePatterns(list)
	if err != nil {
		panic(err) // a constant
	}
	return patterns
}

// KubeletMaySet reports whether a kubelet may create its own Node with a label. Otherwise the API
// server's admission plugin NodeRestriction rejects the whole request (getForbiddenLabels in
// k8s.io/kubernetes/plugin/pkg/admission/noderestriction). It reports true for the keys of
// annotations and taints.
func KubeletMaySet(key string) bool {
	namespace, _, found := strings.Cut(key, "/")
	if !found || !IsLabel(key) {
		return true
	}
	return !NodeRestriction(key) && (!belowDomain(namespace, "kubernetes.io") && !belowDomain(namespace, "k8s.io") || kubeletLabels.Match(key))
}

// belowDomain reports whether a namespace is a domain or one of its subdomains.
func belowDomain(namespace, domain string) bool {
	return namespace == domain || strings.HasSuffix(namespace, "."+domain)
}
