package simulation

// cache is what an actor has seen of the stored objects. It may be behind in each kind.
type cache struct {
	position [kinds]int
	cached   [kinds][pods]int // index of the cached version in the log, plus 1
}

// sync advances the cache of a kind by some events.
func (c *cache) sync(w *world, k kind, count int) {
	log := w.log[k]
	for ; count > 0 && c.position[k] < len(log); count-- {
		c.cached[k][log[c.position[k]].key] = c.position[k] + 1
		c.position[k]++
	}
}

func (c *cache) syncAll(w *world) {
	for k := range w.log {
		c.sync(w, kind(k), len(w.log[k]))
	}
}
