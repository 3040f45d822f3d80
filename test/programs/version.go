package programs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"nodekeeper.dev/test/repository"
)

// Versions returns the output of --version of each built program whose source is in a directory,
// such as cmd, by the names of the programs. Examples, which have no version, are left out.
func Versions(ctx context.Context, dir string) (map[string]string, error) {
	root, err := repository.Root()
	if err != nil {
		return nil, err
	}
	sources, err := os.ReadDir(filepath.Join(root, filepath.FromSlash(dir)))
	if err != nil {
		return nil, fmt.Errorf("listing the programs: %w", err)
	}
	versions := map[string]string{}
	for _, source := range sources {
		name := source.Name()
		if strings.HasPrefix(name, "example-") {
			continue
		}
		path, err := Path(name)
		if err != nil {
			return nil, err
		}
		output, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("asking %s for its version: %w: %s", name, err, output)
		}
		versions[name] = string(output)
	}
	return versions, nil
}
