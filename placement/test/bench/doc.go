// Package bench measures the decisions of placement: scheduling, and building and encoding
// contracts. The results and targets are in placement/docs/performance.md.
package bench
