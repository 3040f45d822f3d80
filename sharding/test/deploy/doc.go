// Package deploy checks sharding/deploy against an API server: that it accepts the manifests, that
// the sharder has exactly the rights that it uses, and that its memory fits.
package deploy
