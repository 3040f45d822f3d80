package output_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/daemon/command/output"
)

// printed returns the output of a view with these arguments.
func printed(t *testing.T, v output.View, args ...string) string {
	t.Helper()
	var out output.Flags
	var shown bytes.Buffer
	cmd := &cobra.Command{RunE: func(*cobra.Command, []string) error { return out.Print(&shown, v) }}
	out.AddFlags(cmd)
	cmd.SetArgs(args)
	require.NoError(t, cmd.Execute())
	return shown.String()
}

func nodes() output.View {
	type item struct {
		Name string `json:"name"`
	}
	type list struct {
		Items []item `json:"items"`
	}
	return output.View{
		Kind: "NodeList", Data: &list{Items: output.Listed([]item(nil))}, Names: []string{"node-1"}, NamePrefix: "node/",
		Table: &metav1.Table{
			ColumnDefinitions: output.Columns("Name", "State", "+UID"),
			Rows:              []metav1.TableRow{{Cells: []any{"node-1", "live", "u"}}},
		},
	}
}

func TestPrintHasAFormForPeopleAndOneForPrograms(t *testing.T) {
	for want, args := range map[string][]string{
		"NAME     STATE\nnode-1   live\n":            nil,
		"NAME     STATE   UID\nnode-1   live    u\n": {"-o", "wide"},
		"node-1   live\n":                            {"--no-headers"},
		"node/node-1\n":                              {"-o", "name"},
		"apiVersion: cli.nodekeeper.dev/v1alpha1\nitems: []\nkind: NodeList\n": {"-o", "yaml"},
		"NodeList": {"-o", "jsonpath={.kind}"},
	} {
		assert.Equal(t, want, printed(t, nodes(), args...), "%v", args)
	}
	text := output.View{Text: func(w io.Writer) { output.Lines(w)("Name", "%d", 1) }}
	assert.Equal(t, "Name:           1\n", printed(t, text))
}

func TestCellsOfTables(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 14, 15, 0, time.UTC)
	assert.Equal(t, "-", output.AgeOf(nil, now))
	assert.Equal(t, "90s", output.AgeOf(&metav1.Time{Time: now.Add(-90 * time.Second)}, now))
	assert.Equal(t, "45d", output.AgeOf(&metav1.Time{Time: now.AddDate(0, 0, -45)}, now))
	assert.Equal(t, "-", output.OrNone(""))
	assert.Equal(t, "x", output.OrNone("x"))
}

func TestProgressIsSilentUnlessItIsATerminal(t *testing.T) {
	var shown bytes.Buffer
	p := output.NewProgress(&shown)
	p.Show("%d of 2", 1)
	p.Done()
	assert.Empty(t, shown.String())
}
