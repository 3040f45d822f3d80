// Package typist types what a page tells people to type, and compares what comes with what the page
// shows.
//
// A [Shell] takes commands one after the other, as a terminal does, and nothing that it starts
// outlives the process that opened it. [Treatments] say how each command of a page is typed, so that
// a new command of the page is a failure. A [Walk] types them all.
package typist
