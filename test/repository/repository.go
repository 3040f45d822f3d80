// Package repository finds the root of this repository for the tests and tools that use what is
// built there. They belong to several modules, and tests run in the directory of their package.
package repository

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Root returns the nearest directory, from the working directory upwards, that holds project.mk,
// which is in the root alone.
func Root() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(filepath.Join(dir, "project.mk"))
		switch {
		case err == nil:
			return dir, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("finding the repository: %w", err)
		case dir == filepath.Dir(dir):
			return "", fmt.Errorf("finding the repository: %s is not inside of it", wd)
		}
	}
}
