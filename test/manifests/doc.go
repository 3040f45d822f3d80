// Package manifests renders and applies manifests as kubectl does, for tests of what they install,
// and compares the rights that they grant with those that programs use.
package manifests
