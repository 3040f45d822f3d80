package preserve_test

import (
	"maps"
	"strconv"
	"testing"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

func BenchmarkDecide(b *testing.B) {
	live, err := labels.ParsePatterns(labels.DefaultLive)
	if err != nil {
		b.Fatal(err)
	}
	own := map[string]string{"kubernetes.io/hostname": "node-1", "kubernetes.io/os": "linux"}
	saved := maps.Clone(own)
	for i := range 10 {
		saved["example.com/key-"+strconv.Itoa(i)] = "value"
	}
	policy := labels.Policy{Mode: labels.Replace, Live: live}
	r := record.Record{Node: "node-1", Labels: saved, Revision: revision.MustParse("10"), Source: "first"}
	node := &nodeview.Node{UID: "second", Revision: revision.MustParse("21"), Labels: own}
	for name, tc := range map[string]struct {
		transaction txn.Transaction
		want        preserve.Action
	}{
		"save":    {txn.Transaction{Type: txn.Deleted, Node: "node-1", UID: "first", Revision: revision.MustParse("20"), Labels: saved}, preserve.Save},
		"restore": {txn.Transaction{Type: txn.Added, Node: "node-1", UID: "second", Revision: revision.MustParse("21"), Labels: own}, preserve.Restore},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d := preserve.Decide(tc.transaction, &r, node, policy); d.Action != tc.want {
					b.Fatal(d)
				}
			}
		})
	}
}
