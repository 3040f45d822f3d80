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
	// Auto selects ByPolicy if the API server supports it, and None otherwise.
	Auto     Mode = "auto"
	ByPolicy Mode = "policy"
	// ByWebhook is reserved.
	ByWebhook Mode = "webhook"
	None      Mode = "none"
)

// Validate returns an error if the mode is unknown or not supported.
func (m Mode) Validate() error {
	switch m {
	case Auto, ByPolicy, None:
		return nil
	case ByWebhook:
		return errors.New("the webhook mode is not implemented yet: use auto, policy or none")
	default:
		return fmt.Errorf("unknown mode %q: use auto, policy or none", string(m))
	}
}

// errNotServed means that the API server is too old or the API is disabled.
var errNotServed = errors.New("the API server does not serve mutatingadmissionpolicies of admissionregistration.k8s.io/v1: use Kubernetes 1.36 or newer, or --admission=none")

// Resolve returns ByPolicy or None. For Auto and ByPolicy it checks whether the API server serves
// admission policies.
func (m Mode) Resolve(mapper meta.RESTMapper) (Mode, error) {
	if m == None {
		return None, nil
	}
	kind := schema.GroupKind{Group: admissionregistrationv1.GroupName, Kind: "MutatingAdmissionPolicy"}
	_, err := mapper.RESTMapping(kind, admissionregistrationv1.SchemeGroupVersion.Version)
	switch {
	case err == nil:
		return ByPolicy, nil
	case !meta.IsNoMatchError(err):
		return "", fmt.Errorf("looking up admission policies: %w", err)
	case m == Auto:
		return None, nil
	default:
		return "", errNotServed
	}
}
