// Package version identifies the build of a program.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// Version is the version of this build, as `git describe` names it. The linker sets it (see the
// Makefile); without that, as with `go run` and in tests, it is "devel".
var Version = "devel"

// commit is what the linker sets.
var commit string

// Commit is what git calls the commit that this build is made from. The linker sets it; without
// that it is what the Go toolchain recorded, with "+dirty" if there were changes on top, or
// "unknown".
func Commit() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	return commitOf(info.Settings)
}

// Line is what --version prints of a program.
func Line(program string) string {
	return fmt.Sprintf("%s %s (commit %s, %s)", program, Version, Commit(), runtime.Version())
}

// Metric is nodekeeper_build_info, whose labels are what Line says.
func Metric(program string) prometheus.Collector {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "nodekeeper_build_info",
		Help:        "Always 1; the labels identify the program and its build.",
		ConstLabels: prometheus.Labels{"program": program, "version": Version, "commit": Commit(), "goversion": runtime.Version()},
	})
	info.Set(1)
	return info
}

// unknown is the commit of a build without one.
const unknown = "unknown"

func commitOf(settings []debug.BuildSetting) string {
	revision, dirty := unknown, ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	return revision + dirty
}
