package controlplane

import (
	"fmt"
	"os"
	"path/filepath"

	"nodekeeper.dev/test/repository"
)

// assetsEnv names the directory with the servers' binaries. All tools around envtest use this
// variable.
const assetsEnv = "KUBEBUILDER_ASSETS"

// Assets returns the directory that holds both binaries, and usually a kubectl.
func Assets() (string, error) {
	dir := os.Getenv(assetsEnv)
	if dir == "" {
		root, err := repository.Root()
		if err != nil {
			return "", fmt.Errorf("looking for the control plane (set %s if it is elsewhere): %w", assetsEnv, err)
		}
		dir = filepath.Join(root, "bin", "controlplane")
	}
	for _, server := range []Server{Etcd, APIServer} {
		if _, err := os.Stat(filepath.Join(dir, string(server))); err != nil {
			return "", fmt.Errorf("looking for the control plane (in %s if set): %w: run \"make controlplane\"", assetsEnv, err)
		}
	}
	return dir, nil
}
