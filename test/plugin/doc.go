// Package plugin tests the built kubectl plugin by kubectl itself, against a real API server and with the built programs at work.
//
// story_test.go is one story that has every command in it. What people see in it stands in docs/cli/sessions, and what programs read in
// testdata; go test ./test/plugin -update rewrites both. The other tests look at one concern each.
package plugin
