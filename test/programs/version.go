package programs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"nodekeeper.dev/test/repository"
)

// CheckVersions checks that make has stamped each built program whose source is in a directory,
// such as cmd, and returns their number. Examples, which have no version, are left out.
func CheckVersions(ctx context.Context, dir string) (count int, err error) {
	root, err := repository.Root()
	if err != nil {
		return 0, err
	}
	sources, err := os.ReadDir(filepath.Join(root, filepath.FromSlash(dir)))
	if err != nil {
		return 0, fmt.Errorf("listing the programs: %w", err)
	}
	for _, source := range sources {
		name := source.Name()
		if strings.HasPrefix(name, "example-") {
			continue
		}
		path, err := Path(name)
		if err != nil {
			return 0, err
		}
		output, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("asking %s for its version: %w: %s", name, err, output)
		}
		stamp := regexp.MustCompile("^" + name + ` \S+ \(commit [0-9a-f]{40}, ` + runtime.Version() + `\)\n$`)
		if !stamp.Match(output) {
			return 0, fmt.Errorf("the version of %s does not match %s: %s", name, stamp, output)
		}
		count++
	}
	return count, nil
}
