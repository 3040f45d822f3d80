package programs

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
)

// Flag is what --help of a program says of one of its flags.
type Flag struct {
	Name string
	// IsSwitch reports whether it takes no value.
	IsSwitch bool
	Usage    string
	// Default is as the usage says it, without quotes. "" is the zero value.
	Default string
}

var (
	// helpFlag matches a flag in the output of --help: its name, the word for its value, which a switch
	// has not, and its usage.
	helpFlag = regexp.MustCompile(`(?m)^  -([a-z][a-z-]*)(?: (\w+))?\n\s+(.*)$`)
	// inUsage is the default at the end of a usage, with or without quotes.
	inUsage = regexp.MustCompile(`\(default "?([^"]*?)"?\)$`)
)

// Flags returns the flags of a built program by their names.
func Flags(ctx context.Context, program string) (map[string]Flag, error) {
	path, err := Path(program)
	if err != nil {
		return nil, err
	}
	help, err := exec.CommandContext(ctx, path, "--help").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("asking %s for its flags: %w: %s", program, err, help)
	}
	flags := map[string]Flag{}
	for _, found := range helpFlag.FindAllStringSubmatch(string(help), -1) {
		f := Flag{Name: found[1], IsSwitch: found[2] == "", Usage: found[3]}
		if says := inUsage.FindStringSubmatch(f.Usage); says != nil {
			f.Default = says[1]
		}
		flags[f.Name] = f
	}
	return flags, nil
}
