package txn_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
)

// hashOfNode1 is the output of: printf node-1 | sha256sum.
const hashOfNode1 = "35971be6e9bb024a895582fe0e42e04848a86da550aaef0fccbfba86f99f617d"

func TestNodeHashIsTheSHA256OfTheName(t *testing.T) {
	assert.Equal(t, hashOfNode1, txn.NodeHash("node-1"))
}

func TestNodeLabelsHoldTheStartOfTheNodeHash(t *testing.T) {
	assert.Equal(t, map[string]string{txn.NodeHashLabel: hashOfNode1[:16]}, txn.NodeLabels("node-1"))
}

func TestNameIsTheNodeHashAndTheResourceVersion(t *testing.T) {
	name := txn.Transaction{Node: "node-1", Revision: revision.MustParse("2571")}.Name()
	assert.Equal(t, hashOfNode1+".2571", name)

	longest := txn.Transaction{Node: strings.Repeat("n", 253), Revision: revision.Of(strings.Repeat("9", 100))}.Name()
	assert.Empty(t, apivalidation.NameIsDNSSubdomain(longest, false), "a legal name for any node")
}

func TestSplitNameIsTheInverseOfName(t *testing.T) {
	for _, rv := range []string{"1", "10", "2571", "18446744073709551616", strings.Repeat("9", 100)} {
		nodeHash, resourceVersion, ok := txn.SplitName(txn.Transaction{Node: "node-1", Revision: revision.Of(rv)}.Name())
		assert.True(t, ok, rv)
		assert.Equal(t, hashOfNode1, nodeHash)
		assert.Equal(t, rv, resourceVersion.String())
	}
}

// badNames are not names of transactions.
var badNames = map[string]string{
	"nothing":                             "",
	"another ConfigMap":                   "kube-root-ca.crt",
	"no resourceVersion":                  hashOfNode1,
	"an empty resourceVersion":            hashOfNode1 + ".",
	"no hash":                             ".2571",
	"resourceVersion 0":                   hashOfNode1 + ".0",
	"a leading zero":                      hashOfNode1 + ".02571",
	"a negative resourceVersion":          hashOfNode1 + ".-1",
	"a resourceVersion with a sign":       hashOfNode1 + ".+1",
	"a resourceVersion that is no number": hashOfNode1 + ".25x",
	"a resourceVersion in hexadecimal":    hashOfNode1 + ".0x1f",
	"another script's digits":             hashOfNode1 + ".٢",
	"a space":                             hashOfNode1 + ". 1",
	"a second dot":                        hashOfNode1 + ".2571.1",
	"a hash in capitals":                  strings.ToUpper(hashOfNode1) + ".2571",
	"a hash that is too short":            hashOfNode1[1:] + ".2571",
	"a hash that is too long":             "0" + hashOfNode1 + ".2571",
	"a letter that is not hexadecimal":    hashOfNode1[:63] + "g.2571",
	"a letter in the middle":              hashOfNode1[:30] + "x" + hashOfNode1[31:] + ".2571",
}

func TestSplitNameRejectsOtherNames(t *testing.T) {
	for name, tc := range badNames {
		t.Run(name, func(t *testing.T) {
			nodeHash, resourceVersion, ok := txn.SplitName(tc)
			assert.False(t, ok)
			assert.Empty(t, nodeHash)
			assert.Empty(t, resourceVersion)
		})
	}
}
