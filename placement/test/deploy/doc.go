// Package deploy checks placement/deploy and placement/examples/queue against an API server: that it
// accepts the manifests and their pods, and that the policy keeps pods from writing the Leases of
// others.
package deploy
