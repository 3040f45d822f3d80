package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/repository"
)

const output = `
nodekeeper, on a cluster of its own
  0.000s  demo          starting etcd and kube-apiserver

2/7  A label is edited
  5.547s  user          label node a rack=r<1>
  5.555s  transaction   ADDED     13029f9e….244
                        rack: r1
  5.594s  record        GET       a
                        rack: r1
  ✓ it is recorded

3/7  The node comes back
  5.608s                the labels came 7 ms after the node

4/7  Something else
  6.000s  user          delete node b
`

func TestPartsAreThoseOfThePicture(t *testing.T) {
	parts, err := partsOf(output)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(parts, "2/7  A label"), parts)
	assert.True(t, strings.HasSuffix(parts, "7 ms after the node\n"), parts)

	_, err = partsOf(strings.Replace(output, "3/7", "3/8", 1))
	require.ErrorContains(t, err, "not have all the parts")
}

func TestPictureHasEveryLineButThoseOfTransactions(t *testing.T) {
	parts, err := partsOf(output)
	require.NoError(t, err)
	drawn := string(draw(parts))
	assert.Contains(t, drawn, "label node a rack=r&lt;1&gt;")
	assert.Contains(t, drawn, `class="who">record</tspan>`)
	assert.Contains(t, drawn, "it is recorded")
	assert.Contains(t, drawn, "the labels came 7 ms after the node")
	assert.NotContains(t, drawn, "13029f9e")
	assert.Equal(t, 1, strings.Count(drawn, ">rack: r1<"), "that of the record, and not that of the transaction")
}

func TestCheckSeesWhatIsNotFresh(t *testing.T) {
	dir := t.TempDir()
	run := filepath.Join(dir, "run.txt")
	write := func(file, content string) { require.NoError(t, os.WriteFile(file, []byte(content), 0o600)) }
	write(run, output)
	require.NoError(t, animate(dir, run, false))
	require.NoError(t, animate(dir, run, true))

	write(run, strings.NewReplacer("5.594s", "12.1s", "7 ms", "11 ms", "rack: r1\n", "rack:\n"+strings.Repeat(" ", 24)+"r1\n").Replace(output))
	require.NoError(t, animate(dir, run, true), "numbers and line breaks")
	first, second, _ := strings.Cut(output, "  5.555s")
	entry, rest, _ := strings.Cut(second, "  5.594s  record        GET       a\n                        rack: r1\n")
	write(run, first+"  5.594s  record        GET       a\n                        rack: r1\n"+"  5.555s"+entry+rest)
	require.NoError(t, animate(dir, run, true), "the order of events")
	write(run, strings.Replace(output, "came", "went", 1))
	require.ErrorContains(t, animate(dir, run, true), "run make picture")

	write(run, output)
	write(filepath.Join(dir, "demo.svg"), "<svg/>")
	require.ErrorContains(t, animate(dir, run, true), "is not made from")
}

func TestPictureOfTheReadmeIsFresh(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	recorded, err := os.ReadFile(filepath.Join(root, "docs", "pictures", "demo.txt"))
	require.NoError(t, err)
	drawn, err := os.ReadFile(filepath.Join(root, "docs", "pictures", "demo.svg"))
	require.NoError(t, err)
	assert.Equal(t, string(drawn), string(draw(string(recorded))), "run make picture")
}
