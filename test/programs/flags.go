package programs

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// Flag is the description of a flag in the output of --help.
type Flag struct {
	Name string
	// Value is the placeholder of its value. A boolean flag has none.
	Value string
	// Usage is the usage without the default.
	Usage string
	// Default is the default as printed, in quotes if it is a string. It is empty if none is printed.
	Default string
}

// ByName compares flags by their names.
func ByName(a, b Flag) int { return cmp.Compare(a.Name, b.Name) }

// DefaultValue returns the default without quotes, as on the command line.
func (f Flag) DefaultValue() string { return strings.Trim(f.Default, `"`) }

var (
	// anyFlag matches the first line of each flag in the output of --help.
	anyFlag = regexp.MustCompile(`(?m)^ +-`)
	// helpFlag matches a flag as the packages flag and pflag print it: its name, the placeholder of
	// its value, and its usage.
	helpFlag = regexp.MustCompile(`(?m)^ +(?:-\w, )?--?([a-z][a-z-]*)(?: (\w+))?(?:\n\s+| {2,})(.*)$`)
	// usageAndDefault matches a usage with a default.
	usageAndDefault = regexp.MustCompile(`^(.*?) \(default (.*)\)$`)
)

// Flags returns the flags of a built program by name, or those of one of its commands.
func Flags(ctx context.Context, program string, command ...string) (map[string]Flag, error) {
	path, err := Path(program)
	if err != nil {
		return nil, err
	}
	help, err := exec.CommandContext(ctx, path, slices.Concat(command, []string{"--help"})...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("asking %s for its flags: %w: %s", program, err, help)
	}
	flags := map[string]Flag{}
	for _, found := range helpFlag.FindAllStringSubmatch(string(help), -1) {
		f := Flag{Name: found[1], Value: found[2], Usage: found[3]}
		if split := usageAndDefault.FindStringSubmatch(f.Usage); split != nil {
			f.Usage, f.Default = split[1], split[2]
		}
		flags[f.Name] = f
	}
	if has := len(anyFlag.FindAll(help, -1)); has != len(flags) {
		return nil, fmt.Errorf("reading the help of %s: found %d of %d flags: %s", program, len(flags), has, help)
	}
	return flags, nil
}
