// Package ui serves a page that shows what nodekeeper does, live: the nodes and their states, the queue,
// what is saved and restored, and the replicas.
//
// A [Feed] turns what watches show into entries, and a [Journal] keeps the last state of each entry. The
// page reads the journal as server-sent events: everything there is, then every change. All tabs share one
// journal. A client that reads slowly gets fewer, newer states of an entry; the server keeps one number
// for it.
//
// The page can change nothing. It is for one person on the same machine: the [Server] answers only
// requests that name a loopback address as the host, and that hold a cookie which [Server.Link] gives out
// once. Labels and names come from whoever may write them, so the page treats all of them as text, and
// its Content-Security-Policy forbids scripts and styles of others.
//
// journal.go is the entries, feed.go what they are made of, server.go the handler, session.go who may
// read, stream.go the events, and assets the page.
package ui
