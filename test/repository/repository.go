// Package repository finds the root of this repository for the tests and tools that use what is built there. They
// belong to several modules, and tests run in the directory of their package.
package repository

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Root returns the nearest directory, from the working directory upwards, that holds the go.mod of module nodekeeper.dev.
// The modules that are nested in it are passed over.
func Root() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		switch {
		case err == nil && bytes.HasPrefix(mod, []byte("module nodekeeper.dev\n")):
			return dir, nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("finding the repository: %w", err)
		case dir == filepath.Dir(dir):
			return "", fmt.Errorf("finding the repository: %s is not inside module nodekeeper.dev", wd)
		}
	}
}
