package txn_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

func TestCompareOrdersByNumberOfAnyLength(t *testing.T) {
	inOrder := []string{
		"1", "2", "9", "10", "11", "99", "100", "2571",
		"9223372036854775807", "9223372036854775808", // math.MaxInt64, and one more
		"18446744073709551615", "18446744073709551616", // math.MaxUint64, and one more
		strings.Repeat("9", 60), "1" + strings.Repeat("0", 60), "1" + strings.Repeat("0", 59) + "1",
	}
	for i, a := range inOrder {
		for j, b := range inOrder {
			want := 0
			switch {
			case i < j:
				want = -1
			case i > j:
				want = 1
			}
			assert.Equal(t, want, txn.Compare(txn.Transaction{Revision: revision.Of(a)}, txn.Transaction{Revision: revision.Of(b)}), "%s and %s", a, b)
		}
	}
}

func TestCompareUsesOnlyTheResourceVersion(t *testing.T) {
	a := txn.Transaction{Type: txn.Deleted, Node: "z", UID: "z", Revision: revision.MustParse("9"), Marker: "100"}
	b := txn.Transaction{Type: txn.Added, Node: "a", UID: "a", Revision: revision.MustParse("10"), Marker: "1"}
	got := []txn.Transaction{b, a}
	slices.SortFunc(got, txn.Compare)
	assert.Equal(t, []txn.Transaction{a, b}, got)
}
