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
	served, err := serves(mapper, "MutatingAdmissionPolicy")
	switch {
	case err != nil:
		return "", err
	case served:
		return ByPolicy, nil
	case m == Auto:
		return ByWebhook, nil
	default:
		return "", errNotServed
	}
}

// ServesFences reports whether the API server serves ValidatingAdmissionPolicies.
func ServesFences(mapper meta.RESTMapper) (bool, error) {
	return serves(mapper, "ValidatingAdmissionPolicy")
}

// serves reports whether the API server serves a kind of admission policies.
func serves(mapper meta.RESTMapper, kind string) (bool, error) {
	_, err := mapper.RESTMapping(schema.GroupKind{Group: admissionregistrationv1.GroupName, Kind: kind}, admissionregistrationv1.SchemeGroupVersion.Version)
	if err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("looking up admission policies: %w", err)
	}
	return err == nil, nil
}
