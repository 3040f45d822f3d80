// Package version says which build of nodekeeper a program is.
package version

import "runtime/debug"

// Version is the version of this build, as `git describe` names it. The linker sets it (see the Makefile); without
// that, as with `go run` and in tests, it is "devel".
var Version = "devel"

// String returns the version for people and logs: the version, and in parentheses the commit that it was built from
// where the Go toolchain recorded one; "+dirty" after the commit says that there were changes on top of it.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Version
	}
	return describe(Version, info.Settings)
}

func describe(version string, settings []debug.BuildSetting) string {
	var revision, dirty string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if revision == "" {
		return version
	}
	return version + " (" + revision + dirty + ")"
}
