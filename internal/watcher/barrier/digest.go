package barrier

import (
	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/types"
)

// Digest is the digest of a set of incarnations. It is a sum of hashes, so it can be updated
// incrementally and does not depend on the order. The zero value is the digest of the empty set.
type Digest uint64

// Add returns the digest with an incarnation added.
func (d Digest) Add(node string, uid types.UID) Digest { return d + hash(node, uid) }

// Remove returns the digest with an incarnation removed.
func (d Digest) Remove(node string, uid types.UID) Digest { return d - hash(node, uid) }

func hash(node string, uid types.UID) Digest {
	// Names of Nodes never contain a slash.
	return Digest(xxhash.Sum64String(node + "/" + string(uid)))
}
