// Package faults lets the calls of a client go wrong as those to an API server can. It is for tests: they
// inject a fault, run on, and then check every guarantee.
//
//	lost := &faults.LostAnswer{Calls: faults.Calls{Verb: faults.Create, Kind: "ConfigMap", Times: 1}}
//	queue := &txn.Queue{Client: faults.Client(c, lost), Namespace: ns}
//
// There is one type a fault, and all are safe for concurrent use. Each is told by [Calls] which calls it
// hits, and counts them: a test whose fault never happened has shown nothing.
package faults
