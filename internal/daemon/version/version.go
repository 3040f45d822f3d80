// Package version identifies the build of a program.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// Version is the version of this build, from `git describe`. The linker sets it (see the Makefile);
// otherwise, as with `go run` and in tests, it is "devel".
var Version = "devel"

// commit is set by the linker.
var commit string

// Commit returns the git commit of this build. If the linker did not set it, it is the commit
// recorded by the Go toolchain, with "+dirty" if there were uncommitted changes, or "unknown".
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

// Line returns the output of --version for a program.
func Line(program string) string {
	return fmt.Sprintf("%s %s (commit %s, %s)", program, Version, Commit(), runtime.Version())
}

// Metric returns nodekeeper_build_info, whose labels contain the fields of Line.
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
