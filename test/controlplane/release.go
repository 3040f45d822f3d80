package controlplane

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
)

// mutatingPolicies is the minor release of Kubernetes in which MutatingAdmissionPolicy is stable.
const mutatingPolicies = 36

// HasMutatingPolicies reports whether the API server of the kubeconfig has MutatingAdmissionPolicy.
func HasMutatingPolicies(tb testing.TB, kubeconfig string) bool {
	tb.Helper()
	return !releaseOf(tb, kubeconfig).LessThan(version.MajorMinor(1, mutatingPolicies))
}

// NeedMutatingPolicies skips the test if the API server of the kubeconfig has no
// MutatingAdmissionPolicy.
func NeedMutatingPolicies(tb testing.TB, kubeconfig string) {
	tb.Helper()
	NeedRelease(tb, kubeconfig, mutatingPolicies, "a MutatingAdmissionPolicy")
}

// NeedRelease skips the test if the API server of the kubeconfig is older than Kubernetes 1.minor:
// make KUBE=1.30 runs the tests on releases that lack something.
func NeedRelease(tb testing.TB, kubeconfig string, minor uint, why string) {
	tb.Helper()
	if v := releaseOf(tb, kubeconfig); v.LessThan(version.MajorMinor(1, minor)) {
		tb.Skipf("Kubernetes %s: this needs 1.%d or newer: %s", v, minor, why)
	}
}

func releaseOf(tb testing.TB, kubeconfig string) *version.Version {
	tb.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(tb, err)
	server, err := discovery.NewDiscoveryClientForConfigOrDie(cfg).ServerVersion()
	require.NoError(tb, err)
	v, err := version.ParseGeneric(server.GitVersion)
	require.NoError(tb, err)
	return v
}
