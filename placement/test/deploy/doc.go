// Package deploy checks placement/deploy and placement/examples/queue against an API server: that
// it accepts the manifests, that the controller and the agents have exactly the rights that they
// use, and that the policy keeps pods from writing the Leases of others. It also types the commands
// of the pages.
package deploy
