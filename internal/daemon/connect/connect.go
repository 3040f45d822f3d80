// Package connect makes the connection of a program to its cluster. It does not depend on
// controller-runtime.
package connect

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"nodekeeper.dev/internal/daemon/version"
)

// Config returns the connection to the cluster: from the file kubeconfig, or if that is empty, from
// $KUBECONFIG or the pod's service account, in this order. Any error is one line with advice.
func Config(program, kubeconfig string) (*rest.Config, error) {
	cfg, err := loadConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = "nodekeeper-" + program + "/" + version.Version
	// No client-side rate limit: the API server's priority and fairness distributes its capacity,
	// and a limit here would only delay restores.
	cfg.QPS = -1
	// Since Kubernetes 1.37 the API server compresses a watch that begins with the existing objects,
	// each event by itself, for as long as it lasts (feature gate WatchListCompression).
	cfg.DisableCompression = true
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return sendOnce{next} })
	return cfg, nil
}

// sendOnce keeps client-go from repeating a write, which it does up to ten times after a delay that
// an API server requests when it shuts down or is overloaded. In the meantime, etcd may have been
// restored from a backup, so that the state on which the write was based never existed. The caller
// decides again from a live read, with its own backoff.
type sendOnce struct{ next http.RoundTripper }

// RoundTrip is safe for concurrent use.
func (s sendOnce) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(req)
	if err == nil && req.Method != http.MethodGet {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

func loadConfig(kubeconfig string) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	if kubeconfig == "" {
		rules.Precedence = splitPaths(os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	}
	if kubeconfig == "" && len(rules.Precedence) == 0 {
		cfg, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no cluster to connect to: set --kubeconfig or KUBECONFIG, or run in a pod")
		}
		if err != nil {
			return nil, fmt.Errorf("reading the service account of the pod: %w", err)
		}
		return cfg, nil
	}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("KUBECONFIG=%s names no usable kubeconfig: check the path, or set --kubeconfig", os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w: check --kubeconfig and KUBECONFIG", err)
	}
	return cfg, nil
}

func splitPaths(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == os.PathListSeparator })
}
