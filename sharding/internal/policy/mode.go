package policy

import (
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Mode says how objects get their shard when they are created.
type Mode string

// The modes.
const (
	// Auto is ByPolicy if the API server can do that, else None.
	Auto     Mode = "auto"
	ByPolicy Mode = "policy"
	// ByWebhook does not exist yet.
	ByWebhook Mode = "webhook"
	None      Mode = "none"
)

// Validate returns an error that says what to do if there is no such mode.
func (m Mode) Validate() error {
	switch m {
	case Auto, ByPolicy, None:
		return nil
	case ByWebhook:
		return errors.New("the webhook is not built yet: give auto, policy or none")
	default:
		return fmt.Errorf("there is no mode %q: give auto, policy or none", string(m))
	}
}

// errNotServed means that the API server is too old, or the API is turned off.
var errNotServed = errors.New("the API server does not serve mutatingadmissionpolicies of admissionregistration.k8s.io/v1: use Kubernetes 1.36 or newer, or --admission=none")

// Resolve returns ByPolicy or None. It asks whether the API server serves what policies need.
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
		return "", fmt.Errorf("asking the API server for admission policies: %w", err)
	case m == Auto:
		return None, nil
	default:
		return "", errNotServed
	}
}
