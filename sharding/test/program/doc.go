// Package program contains the end-to-end tests of the sharder program against a real API server.
package program
