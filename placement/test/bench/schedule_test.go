package bench

import (
	"fmt"
	"testing"

	"nodekeeper.dev/placement/schedule"
)

const pods = 200

// policy gives each pod a capacity of 125 % of the average load.
var policy = schedule.Policy{Capacity: 63}

func openPods(n int) []schedule.Pod {
	result := make([]schedule.Pod, n)
	for i := range result {
		result[i] = schedule.Pod{Name: fmt.Sprintf("worker-%d", i), Ordinal: int32(i)}
	}
	return result
}

func items(n int, replicas int32) []schedule.Item {
	result := make([]schedule.Item, n)
	for i := range result {
		result[i] = schedule.Item{Key: fmt.Sprintf("namespace-%d/queue-%d", i%17, i), Replicas: replicas, Bytes: 200}
	}
	return result
}

// shapes are two ways to distribute 10,000 virtual replicas over items.
var shapes = map[string][]schedule.Item{"1000x10": items(1000, 10), "10000x1": items(10_000, 1)}

func each(b *testing.B, measure func(b *testing.B, items []schedule.Item, now schedule.Assignment)) {
	b.Helper()
	for _, name := range []string{"1000x10", "10000x1"} {
		now, pending := schedule.Schedule(policy, openPods(pods), shapes[name], nil)
		if len(pending) > 0 {
			b.Fatalf("%d are pending", len(pending))
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			measure(b, shapes[name], now)
		})
	}
}

// moved counts the virtual replicas that are on another pod than before.
func moved(now, next schedule.Assignment) (moves int) {
	for key, shares := range next {
		for pod, count := range shares {
			moves += int(max(count-now[key][pod], 0))
		}
	}
	return moves
}

func BenchmarkFill(b *testing.B) {
	each(b, func(b *testing.B, items []schedule.Item, _ schedule.Assignment) {
		b.Helper()
		all := openPods(pods)
		cpu := startCPU(b)
		for b.Loop() {
			schedule.Schedule(policy, all, items, nil)
		}
		cpu.report()
	})
}

func BenchmarkPodLost(b *testing.B) {
	each(b, func(b *testing.B, items []schedule.Item, now schedule.Assignment) {
		b.Helper()
		all := openPods(pods)
		all[77].State = schedule.Ended
		var next schedule.Assignment
		cpu := startCPU(b)
		for b.Loop() {
			next, _ = schedule.Schedule(policy, all, items, now)
		}
		cpu.report()
		b.ReportMetric(float64(moved(now, next)), "moves")
	})
}

func BenchmarkNothingToDo(b *testing.B) {
	each(b, func(b *testing.B, items []schedule.Item, now schedule.Assignment) {
		b.Helper()
		all := openPods(pods)
		var next schedule.Assignment
		cpu := startCPU(b)
		for b.Loop() {
			next, _ = schedule.Schedule(policy, all, items, now)
		}
		cpu.report()
		b.ReportMetric(float64(moved(now, next)), "moves")
	})
}

func BenchmarkPodAdded(b *testing.B) {
	each(b, func(b *testing.B, items []schedule.Item, now schedule.Assignment) {
		b.Helper()
		all := openPods(pods + 1)
		var next schedule.Assignment
		cpu := startCPU(b)
		for b.Loop() {
			next, _ = schedule.Schedule(policy, all, items, now)
		}
		cpu.report()
		b.ReportMetric(float64(moved(now, next)), "moves")
	})
}

func BenchmarkRebalance(b *testing.B) {
	each(b, func(b *testing.B, items []schedule.Item, now schedule.Assignment) {
		b.Helper()
		all := openPods(pods + 1)
		var moves []schedule.Move
		cpu := startCPU(b)
		for b.Loop() {
			_, moves = schedule.Rebalance(policy, all, items, now, 1000)
		}
		cpu.report()
		b.ReportMetric(float64(len(moves)), "moves")
	})
}

func BenchmarkNumber(b *testing.B) {
	each(b, func(b *testing.B, items []schedule.Item, now schedule.Assignment) {
		b.Helper()
		cpu := startCPU(b)
		for b.Loop() {
			for i := range items {
				schedule.Number(items[i].Replicas, nil, now[items[i].Key])
			}
		}
		cpu.report()
	})
}
