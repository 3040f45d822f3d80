// Package memory makes long-running programs use less memory.
package memory

import (
	"os"
	"runtime/debug"
)

// gcPercent makes the garbage collector run when the heap has grown by half instead of doubled: the
// services hold their caches, and everything else is garbage within milliseconds. It costs a tenth
// to a seventh more CPU time.
const gcPercent = 50

// Save configures the garbage collector, unless GOGC is set.
func Save() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
