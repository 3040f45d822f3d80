// Package story is what the demos share: a screen, steps with expected results, and the processes that run.
package story
