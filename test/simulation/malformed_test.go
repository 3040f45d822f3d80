package simulation

import (
	"slices"

	"nodekeeper.dev/internal/revision"
)

// malformed is an object that has the name of a transaction and cannot be read.
type malformed struct{ revision revision.Revision }

// takeName creates a malformed object with the name of the transaction of the latest event, unless
// that is stored.
func (w *world) takeName() {
	at := rev(w.events[len(w.events)-1].rv)
	isStored := slices.ContainsFunc(w.queue, func(t *storedTxn) bool { return t.Revision == at })
	if isStored || w.isMalformed(at) {
		return
	}
	w.nextRV()
	w.malformed = append(w.malformed, &malformed{at})
	w.log("V   takes the name of the transaction @%s", at)
}

func (w *world) isMalformed(at revision.Revision) bool {
	return slices.ContainsFunc(w.malformed, func(m *malformed) bool { return m.revision == at })
}

// quarantine moves a malformed object to a name that no transaction has.
func (a *processorActor) quarantine() {
	m := a.world.malformed[0]
	steps := []func(){
		func() { a.world.copyMalformed(m) },
		func() { a.world.deleteMalformed(m) },
	}
	switch {
	case a.mutant.keepsNames:
		return
	case a.mutant.deletesFirst:
		slices.Reverse(steps)
	}
	for _, step := range steps {
		a.pause()
		step()
	}
	a.log("quarantines what has the name @%s", m.revision)
}

// copyMalformed changes nothing if the copy exists, because it has the same name.
func (w *world) copyMalformed(m *malformed) {
	if !slices.Contains(w.quarantined, m) {
		w.quarantined = append(w.quarantined, m)
	}
}

// deleteMalformed deletes an object, conditional on its UID.
func (w *world) deleteMalformed(m *malformed) {
	w.malformed = slices.DeleteFunc(slices.Clone(w.malformed), func(other *malformed) bool { return other == m })
	w.freed = append(w.freed, m)
}

// checkMalformed checks that every malformed object whose name is free is kept.
func (w *world) checkMalformed() {
	for _, m := range w.freed {
		if !slices.Contains(w.quarantined, m) {
			w.breaks(errDropped, "what had the name @%s", m.revision)
		}
	}
}
