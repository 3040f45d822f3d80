// Package bench measures what placement decides: scheduling, and building and encoding contracts.
// placement/docs/performance.md has the figures and the targets.
package bench
