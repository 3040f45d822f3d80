package watcher

import (
	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/types"
)

// Digest is that of a set of incarnations. It is a sum of hashes, so that it can be kept up to
// date: it does not depend on an order. The zero value is the digest of no Nodes.
type Digest uint64

// Add returns the digest with one incarnation more.
func (d Digest) Add(node string, uid types.UID) Digest { return d + hash(node, uid) }

// Remove returns the digest with one incarnation less.
func (d Digest) Remove(node string, uid types.UID) Digest { return d - hash(node, uid) }

func hash(node string, uid types.UID) Digest {
	// No name of a Node has a slash.
	return Digest(xxhash.Sum64String(node + "/" + string(uid)))
}
