package simulation

import (
	"slices"

	"nodekeeper.dev/placement/contract"
)

// keepEnded is how long the Lease and the contract of a pod stay after its end, in seconds. It is
// much shorter than in a cluster, so that pods return in the meantime.
const keepEnded = 4

// clean deletes the contract and then the Lease of a pod that has ended some time ago and that no
// decision names, conditional on the versions that the leader has seen.
func (l *leader) clean(name int) {
	le, c := l.lease(name), l.contract(name)
	if le != nil {
		l.leaseless[name] = 0
	} else if l.leaseless[name] == 0 {
		l.leaseless[name] = max(l.clock(), 1)
	}
	since := l.leaseless[name]
	if le != nil {
		since = l.sighting[name].at
	}
	pd := l.pod(name)
	returns := l.settings.patience > 0 && pd != nil && !pd.leaving
	if le == nil && c == nil || le != nil && le.holder != "" || l.clock()-since < keepEnded || returns || l.names(name) || l.mayHold(c) {
		return
	}
	if live := l.world.lease(name); live != nil && live.holder != "" {
		return
	}
	if c != nil {
		l.send(func() func() {
			if now := l.world.contract(name); now == nil || now != c && !l.mutant.cleansBlindly {
				return nil
			}
			return l.remove(contractKind, name)
		})
	} else {
		l.send(func() func() {
			if now := l.world.lease(name); now == nil || now != le && !l.mutant.cleansBlindly {
				return nil
			}
			return l.remove(leaseKind, name)
		})
	}
}

// remove deletes an object of a pod, which must not be in use.
func (l *leader) remove(k kind, name int) func() {
	l.world.record("%s deletes the %s of %s, which has ended", l.name, kindText[k], podName(name))
	l.count.cleaned[k]++
	le, c := l.world.lease(name), l.world.contract(name)
	if le != nil && le.holder != "" && (k == leaseKind || c.contract.Incarnation == le.holder && len(c.contract.Entries) > 0) {
		l.world.ghost.breaks(l.world, errBrokeW9, "%s deletes the %s of %s, which is %s", l.name, kindText[k], podName(name), le.holder)
	}
	l.world.writes++
	l.world.store(k, name, nil)
	return func() { l.wrote(k, name) }
}

// names reports whether a decision names a pod.
func (l *leader) names(name int) bool {
	for other := range resources {
		if r := l.resource(other); r != nil {
			for _, share := range slices.Concat(r.status.Placement, r.status.Releasing) {
				if share.PodName == podName(name) {
					return true
				}
			}
		}
	}
	return false
}

// mayHold reports whether a contract lists a resource about which no decision is known, and that a
// live read does not show to be gone.
func (l *leader) mayHold(c *configMap) bool {
	return c != nil && slices.ContainsFunc(c.contract.Entries, func(e contract.Entry) bool {
		for other := range resources {
			if r := l.resource(other); r != nil && r.uid == e.UID {
				return false
			}
		}
		return l.choices.Happens(l.settings.lostAnswers) || l.byUID(e.UID) != nil
	})
}
