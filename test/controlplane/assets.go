package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// assetsEnv names a directory with the servers' binaries. It is the variable that all tools around envtest know.
const assetsEnv = "KUBEBUILDER_ASSETS"

// assets returns the directory that holds both binaries.
func assets() (string, error) {
	dir := os.Getenv(assetsEnv)
	if dir == "" {
		root, err := moduleRoot()
		if err != nil {
			return "", err
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

// moduleRoot returns the nearest directory, from the working directory upwards, that is the root of this module.
func moduleRoot() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the module: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		switch {
		case err == nil && bytes.HasPrefix(mod, []byte("module nodekeeper.dev\n")):
			return dir, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("finding the module: %w", err)
		case dir == filepath.Dir(dir):
			return "", fmt.Errorf("finding the module: %s is not inside module nodekeeper.dev: set %s", wd, assetsEnv)
		}
	}
}
