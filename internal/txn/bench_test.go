package txn_test

import (
	"strconv"
	"testing"
	"time"

	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

func twelveLabels() map[string]string {
	own := map[string]string{"disk": "ssd", "rack": "r7"}
	for i := range 10 {
		own["example.com/key-"+strconv.Itoa(i)] = "value"
	}
	return own
}

func BenchmarkEncoding(b *testing.B) {
	t := txn.Transaction{
		Type: txn.Deleted, Node: "node-1", UID: "0b8a8a0c-9b1c-4bb5-8a43-6a1f2ac1d7a1", Revision: revision.MustParse("2571"),
		Labels: twelveLabels(), ObservedAt: time.Unix(0, 0).UTC(),
	}
	b.Run("ConfigMap", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			t.ConfigMap("transactions")
		}
	})
	b.Run("Parse", func(b *testing.B) {
		cm := t.ConfigMap("transactions")
		b.ReportAllocs()
		for b.Loop() {
			if _, err := txn.Parse(cm); err != nil {
				b.Fatal(err)
			}
		}
	})
}
