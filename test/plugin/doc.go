// Package plugin tests the built plugin by running kubectl, with a real API server and the built
// programs.
//
// story_test.go is one story that uses every command. The output for people is in
// docs/cli/sessions, and the output for programs is in testdata; go test ./test/plugin -update
// rewrites both. Each other test covers one concern.
package plugin
