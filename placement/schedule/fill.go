package schedule

// filler places the virtual replicas of one item at a time. Each zone has a heap of its pods with
// room, best pod first, and the zones form a heap ordered by their best pods.
type filler struct {
	*pool
	open  []int   // open pods, grouped by zone
	start []int   // start of each zone's pods in open
	heaps [][]int // heap of each zone; slices of one array
	zoned []int   // heap of the zones
	count []int64 // virtual replicas of the item in each zone
	here  []int32 // virtual replicas of the item on each pod
}

func newFiller(w *pool) *filler {
	f := &filler{
		pool: w, heaps: make([][]int, w.zones), zoned: make([]int, 0, w.zones), start: make([]int, w.zones+1),
		count: make([]int64, w.zones), here: make([]int32, len(w.pods)),
	}
	for zone := range w.zones {
		f.start[zone] = len(f.open)
		for pod := range w.pods {
			if w.zone[pod] == zone && w.pods[pod].State == Open {
				f.open = append(f.open, pod)
			}
		}
	}
	f.start[w.zones] = len(f.open)
	array := make([]int, len(f.open))
	for zone := range w.zones {
		f.heaps[zone] = array[f.start[zone]:f.start[zone]:f.start[zone+1]]
	}
	return f
}

// fewMissing is the number of virtual replicas up to which scanning all pods for each one is faster
// than building heaps.
const fewMissing = 4

// fill places as many missing virtual replicas of an item as possible, and returns their number.
func (f *filler) fill(r *row) (placed int64) {
	f.begin(r)
	if r.missing() <= fewMissing {
		return f.fillFew(r)
	}
	f.arrange(r)
	for missing := r.missing(); placed < missing && len(f.zoned) > 0; placed++ {
		zone := f.zoned[0]
		pod := f.heaps[zone][0]
		f.add(r.Item, pod, 1)
		f.here[pod]++
		f.count[zone]++
		if !f.hasRoom(r.Item, pod) {
			f.heaps[zone] = pop(f.heaps[zone])
		}
		down(f.heaps[zone], 0, f.isBetter)
		if len(f.heaps[zone]) == 0 {
			f.zoned = pop(f.zoned)
		}
		down(f.zoned, 0, f.isBetterZone)
	}
	return placed
}

// fillFew is fill without heaps.
func (f *filler) fillFew(r *row) (placed int64) {
	for missing := r.missing(); placed < missing; placed++ {
		best := -1
		for _, pod := range f.open {
			if (best < 0 || f.isBetterOfAll(pod, best)) && f.hasRoom(r.Item, pod) {
				best = pod
			}
		}
		if best < 0 {
			break
		}
		f.add(r.Item, best, 1)
		f.here[best]++
		f.count[f.zone[best]]++
	}
	return placed
}

// isBetterOfAll compares pods of any zones.
func (f *filler) isBetterOfAll(a, b int) bool {
	if x, y := f.count[f.zone[a]], f.count[f.zone[b]]; x != y {
		return x < y
	}
	return f.isBetter(a, b)
}

// hasRoom reports whether one more virtual replica of an item fits onto a pod.
func (f *filler) hasRoom(item *Item, pod int) bool {
	bytes := item.each()
	if f.here[pod] == 0 {
		bytes += item.bytes()
	}
	return f.load[pod]+item.weight() <= f.capacity[pod] && (bytes == 0 || f.bytes[pod]+bytes <= f.room[pod])
}

// begin counts the virtual replicas of an item in each zone and on each pod.
func (f *filler) begin(r *row) {
	clear(f.count)
	clear(f.here)
	for name, count := range f.shares(r.Key) {
		pod := f.place[name]
		f.here[pod] = count
		f.count[f.zone[pod]] += int64(count)
	}
}

// arrange builds the heaps for an item.
func (f *filler) arrange(r *row) {
	f.zoned = f.zoned[:0]
	for zone := range f.zones {
		heap := f.heaps[zone][:0]
		for _, pod := range f.open[f.start[zone]:f.start[zone+1]] {
			if f.hasRoom(r.Item, pod) {
				heap = append(heap, pod)
			}
		}
		f.heaps[zone] = heap
		heapify(heap, f.isBetter)
		if len(heap) > 0 {
			f.zoned = append(f.zoned, zone)
		}
	}
	heapify(f.zoned, f.isBetterZone)
}

func (f *filler) isBetterZone(a, b int) bool {
	if f.count[a] != f.count[b] {
		return f.count[a] < f.count[b]
	}
	return f.isBetter(f.heaps[a][0], f.heaps[b][0])
}

func (f *filler) isBetter(a, b int) bool {
	switch {
	case f.here[a] != f.here[b]:
		return f.here[a] < f.here[b]
	case f.load[a] == f.load[b]:
		return a < b
	case f.policy.Strategy == Pack:
		return f.load[a] > f.load[b]
	}
	return f.load[a] < f.load[b]
}

// heapify builds a heap in which no element is better than its parent.
func heapify[T any](heap []T, isBetter func(a, b T) bool) {
	for i := len(heap)/2 - 1; i >= 0; i-- {
		down(heap, i, isBetter)
	}
}

// down restores the heap after the element at i has become worse.
func down[T any](heap []T, i int, isBetter func(a, b T) bool) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && isBetter(heap[child+1], heap[child]) {
			child++
		}
		if !isBetter(heap[child], heap[i]) {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}

// pop removes the first element. The caller must call down for the element that replaces it.
func pop[T any](heap []T) []T {
	last := len(heap) - 1
	heap[0] = heap[last]
	return heap[:last]
}
