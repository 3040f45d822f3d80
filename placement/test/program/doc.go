// Package program tests the built program placement, controller and agents, against a real API
// server.
package program
