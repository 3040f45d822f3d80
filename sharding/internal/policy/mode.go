package policy

import (
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Mode is the mechanism that assigns new objects to shards.
type Mode string

// The admission modes.
const (
	// Auto selects ByPolicy if the API server supports it, and ByWebhook otherwise.
	Auto     Mode = "auto"
	ByPolicy Mode = "policy"
	// ByWebhook makes the decisions of the policies in a webhook that each sharder serves. It needs
	// Kubernetes 1.30.
	ByWebhook Mode = "webhook"
	None      Mode = "none"
)

// Validate returns an error if the mode is unknown.
func (m Mode) Validate() error {
	switch m {
	case Auto, ByPolicy, ByWebhook, None:
		return nil
	default:
		return fmt.Errorf("unknown mode %q: use auto, policy, webhook or none", string(m))
	}
}

// errNotServed means that the API server is too old or the API is disabled.
var errNotServed = errors.New("the API server does not serve mutatingadmissionpolicies of admissionregistration.k8s.io/v1: use Kubernetes 1.36 or newer, or --admission=webhook")

// Resolve returns ByPolicy, ByWebhook or None. For Auto and ByPolicy it checks whether the API server
// serves admission policies.
func (m Mode) Resolve(mapper meta.RESTMapper) (Mode, error) {
	if m == None || m == ByWebhook {
		return m, nil
	}
	kind := schema.GroupKind{Group: admissionregistrationv1.GroupName, Kind: "MutatingAdmissionPolicy"}
	_, err := mapper.RESTMapping(kind, admissionregistrationv1.SchemeGroupVersion.Version)
	switch {
	case err == nil:
		return ByPolicy, nil
	case !meta.IsNoMatchError(err):
		return "", fmt.Errorf("looking up admission policies: %w", err)
	case m == Auto:
		return ByWebhook, nil
	default:
		return "", errNotServed
	}
}
