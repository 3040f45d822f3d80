package bench

import (
	"testing"

	"nodekeeper.dev/placement/schedule"
)

// BenchmarkLook measures the minimum work of any function with the signature of Schedule: one
// access to the shares of each item and to the pod of each share.
func BenchmarkLook(b *testing.B) {
	each(b, func(b *testing.B, items []schedule.Item, now schedule.Assignment) {
		b.Helper()
		place := map[string]int{}
		for i, pod := range openPods(pods) {
			place[pod.Name] = i
		}
		var load [pods]int32
		cpu := startCPU(b)
		for b.Loop() {
			for i := range items {
				for name, count := range now[items[i].Key] {
					load[place[name]] += count
				}
			}
		}
		cpu.report()
	})
}
