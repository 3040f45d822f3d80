package bench

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/contract"
)

// BenchmarkContracts builds and encodes the contracts of 200 pods with 50 shares each.
func BenchmarkContracts(b *testing.B) {
	inputs := make([]contract.Input, pods)
	for i := range inputs {
		incarnation := fmt.Sprintf("41f0c0de-%d/7c1e09b2", i)
		inputs[i] = contract.Input{Incarnation: incarnation, View: &contract.View{ConfigMap: "cm"}}
		for j := range 50 {
			inputs[i].Placed = append(inputs[i].Placed, contract.Placed{
				Reference: contract.Reference{
					UID: types.UID(fmt.Sprintf("0b8a%04d-1111-2222-3333-%012d", j, i)), APIVersion: "example.com/v1", Kind: "Queue", Namespace: "shop", Name: fmt.Sprintf("orders-%d", j),
				},
				Generation: 7, Of: 12, Live: true,
				Status: placement.Status{Decision: 17, Placeable: placement.Placeable{Placement: []placement.Placement{
					{PodName: "other", Incarnation: "other", Indexes: "1-11", Since: 17}, {PodName: "worker", Incarnation: incarnation, Indexes: "0", Since: 17},
				}}},
			})
		}
	}
	b.ReportAllocs()
	bytes := 0
	cpu := startCPU(b)
	for b.Loop() {
		bytes = 0
		for i := range inputs {
			plan := contract.Build(&inputs[i])
			encoded := plan.Contract.Encode()
			bytes += len(encoded)
			contract.Digest(encoded)
		}
	}
	cpu.report()
	b.ReportMetric(float64(bytes)/pods, "bytes/contract")
}
