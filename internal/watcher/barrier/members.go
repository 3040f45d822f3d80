package barrier

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Peer is another watcher, as described by its Lease.
type Peer struct {
	Name string
	// UID is the UID of the Lease.
	UID types.UID
	// Gone reports whether the Lease was released or taken over.
	Gone bool
	// Since is when the Lease last changed, by the clock of this process.
	Since       time.Time
	Annotations map[string]string
}

// Members are all watchers, including this one.
type Members interface {
	// Peers returns the other watchers.
	Peers() []Peer
	// SyncedAt returns a time up to which the view of the others is complete: a later call of Peers
	// includes everything that they stored before it.
	SyncedAt() time.Time
	// Changes returns a channel that receives after every change.
	Changes() <-chan struct{}
}

// Lease is the Lease of this watcher.
type Lease interface {
	// Annotate sets an annotation of the Lease asynchronously.
	Annotate(key, value string)
	// Annotation returns an annotation that the Lease is known to have. From then on,
	// [Members.Peers] includes every watcher that joined before.
	Annotation(key string) string
	// Renew renews the Lease, which advances [Members.SyncedAt] soon if this watcher is connected.
	// It costs a write.
	Renew()
}
