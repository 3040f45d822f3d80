// Package robustness runs the built programs of placement against a real API server: controllers
// with leader election, and agents whose programs write a journal. It injects all kinds of faults
// while people change what they want, and then checks the promises of placement/docs/design.md
// against the journal and against what the API server has shown.
//
// A seed determines a run: a scenario, what people do, and several concurrent faults, each with its
// own small type.
//
//	make robustness PRODUCT=placement SEED=7 SEEDS=1 DURATION=2m
package robustness
