package admission

import (
	"sync"
	"time"

	"nodekeeper.dev/internal/revision"
)

// repeatTime is how long an answer is remembered. A kubelet repeats a request that was refused
// after seven seconds at most, at first far more often (registerWithAPIServer in
// k8s.io/kubernetes/pkg/kubelet), so one of a few webhooks soon gets it twice.
const repeatTime = 30 * time.Second

// repeats remembers from which revision of its record each node was answered. If the same answer is
// due again, the API server has refused the Node with these labels, as it would every time, or the
// return of the node is not noted yet. The zero value is ready to use, and safe for concurrent use.
type repeats struct {
	mu       sync.Mutex
	answered map[string]answered
	pruned   time.Time
}

type answered struct {
	from revision.Revision
	at   time.Time
}

// has remembers an answer, and reports whether it repeats another one.
func (r *repeats) has(node string, from revision.Revision) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.pruned) > repeatTime {
		for name, last := range r.answered {
			if now.Sub(last.at) > repeatTime {
				delete(r.answered, name)
			}
		}
		r.pruned = now
	}
	last, ok := r.answered[node]
	if ok && last.from == from && now.Sub(last.at) <= repeatTime {
		return true
	}
	if r.answered == nil {
		r.answered = map[string]answered{}
	}
	r.answered[node] = answered{from: from, at: now}
	return false
}
