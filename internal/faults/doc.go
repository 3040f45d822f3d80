// Package faults injects into a client the faults of a real API server. It is for tests: they
// inject a fault, continue, and then check every guarantee.
//
//	lost := &faults.LostAnswer{Calls: faults.Calls{Verb: faults.Create, Kind: "ConfigMap", Times: 1}}
//	queue := &queue.Queue{Client: faults.Client(c, lost), Namespace: ns}
//
// There is one type per fault, and all are safe for concurrent use. [Calls] selects the calls that
// a fault hits, and counts them: a test whose fault never happened proves nothing.
package faults
