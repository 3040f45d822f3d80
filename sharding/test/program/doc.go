// Package sharder holds the end-to-end tests of the sharder: its program against a real API server.
package sharder
