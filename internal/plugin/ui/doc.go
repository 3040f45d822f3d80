// Package ui serves a live page of nodekeeper: the nodes and their states, the queue, saves and
// restores, and the replicas.
//
// A [Feed] converts the results of watches into entries, and a [Journal] keeps the last state of
// each entry. The page reads the journal as server-sent events: first all entries, then every
// change. All tabs share one journal. A client that reads slowly skips intermediate states; the
// server keeps one number per client.
//
// The page cannot change anything. It is for one person on the same machine: the [Server] answers
// only requests whose host is a loopback address, and which have a cookie that a link of
// [Server.Link] grants once. Other people may choose labels and names, so the page treats them as
// text, and its Content-Security-Policy forbids foreign scripts and styles.
//
// journal.go has the entries, feed.go and tick.go their sources, server.go the handler, session.go
// the sessions, stream.go the events, and assets the page.
package ui
