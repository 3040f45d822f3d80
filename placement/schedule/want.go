package schedule

import "math"

// WantPods returns the number of pods to run: enough for the load of all items at the policy's
// utilization, but at least MinPods, plus one for each ended pod, which occupies a place without
// working, and at most MaxPods. MinPods increases the number of pods, never the number of virtual
// replicas.
func WantPods(p Policy, pods []Pod, items []Item) int32 {
	var load int64
	for i := range items {
		load += min(int64(max(items[i].Replicas, 0))*items[i].weight(), unlimited-load)
	}
	want := max(int64(p.MinPods), ceil(load, p.aim()))
	for i := range pods {
		if pods[i].State == Ended {
			want++
		}
	}
	if p.MaxPods > 0 {
		want = min(want, int64(p.MaxPods))
	}
	return int32(min(want, math.MaxInt32)) //nolint:gosec // bounded
}

// aim returns the load per pod that WantPods plans for, at least 1.
func (p *Policy) aim() int64 {
	if p.Capacity <= 0 {
		return unlimited
	}
	percent := int64(p.Utilization)
	if percent < 1 {
		percent = 100
	}
	return max(int64(p.Capacity)*percent/100, 1)
}

// ceil returns a / b, rounded up.
func ceil(a, b int64) int64 {
	if a == 0 {
		return 0
	}
	return (a-1)/b + 1
}
