package cli

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/queue"
	"nodekeeper.dev/internal/txn"
)

// long is how long something has waited that is stuck.
const long = 2 * time.Minute

// stuckByHelp has everything that the help of status calls stuck.
func stuckByHelp() map[string]*inspect.Survey {
	malformed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	_, reason := queue.Parse(malformed)
	node := func(n inspect.Summary) *inspect.Survey {
		n.Name = "node-1"
		return &inspect.Survey{Nodes: []inspect.Summary{n}}
	}
	return map[string]*inspect.Survey{
		"a transaction that has been pending for longer than --stuck-after": {
			Pending: []inspect.Pending{{Transaction: txn.Transaction{Type: txn.Updated, Node: "node-1"}, Created: now.Add(-long)}},
		},
		"a ConfigMap in the transaction namespace that is not a transaction": {Malformed: []inspect.Malformed{{Object: malformed, Reason: reason}}},
		"a record that cannot be read":                                       node(inspect.Summary{State: inspect.Unreadable, Problem: "why"}),
		"a node whose deletion has been waiting for nodekeeper's finalizer for longer than --stuck-after": node(inspect.Summary{
			State: inspect.Live, DeletionWaitsSince: ago(long),
		}),
		"a node that has had the startup taint for longer than --stuck-after, whether or not it has the marker that processors look for": node(inspect.Summary{
			State: inspect.Restoring, GatedSince: ago(long),
		}),
		"a node whose record has belonged to another Node of its name for longer than --stuck-after": node(inspect.Summary{
			State: inspect.Live, UnfollowedSince: ago(long),
		}),
	}
}

// TestHelpOfStatusDescribesWhatItPrints: what counts as stuck, a line of the output, and flags.
func TestHelpOfStatusDescribesWhatItPrints(t *testing.T) {
	cmd := newStatusCommand(&plugin{})
	_, list, found := strings.Cut(cmd.Long, "These count as stuck:\n")
	require.True(t, found)
	list, _, _ = strings.Cut(list, "\n\n")
	items := strings.Split(strings.ReplaceAll(strings.TrimPrefix(list, "  "), "\n  a ", "\x00a "), "\x00")
	for i := range items {
		items[i] = strings.Join(strings.Fields(items[i]), " ")
	}
	all := stuckByHelp()
	assert.ElementsMatch(t, slices.Collect(maps.Keys(all)), items)
	for item, survey := range all {
		s := newStatus(survey, nil, now, time.Minute)
		if assert.Len(t, s.Stuck, 1, item) {
			assert.Equal(t, "node-1", s.Stuck[0].Name, item)
		}
	}
	closed := []inspect.Closed{{Name: "node-1", Since: *ago(long)}}
	assert.Len(t, newStatus(&inspect.Survey{}, closed, now, time.Minute).Stuck, 1, "without the marker")

	silent := inspect.Replica{Name: "p", Service: inspect.ProcessorService, IsAlive: true, Heard: ago(11 * time.Second), Silence: 11 * time.Second}
	var shown bytes.Buffer
	newStatus(&inspect.Survey{Replicas: []inspect.Replica{silent}}, nil, now, time.Minute).write(&shown, now, true)
	lines := regexp.MustCompile(`The line (\w+)`).FindAllStringSubmatch(cmd.Long, -1)
	require.NotEmpty(t, lines)
	for _, line := range lines {
		assert.Regexp(t, `(?m)^ *`+line[1]+`: `, shown.String())
	}
	assert.Contains(t, cmd.Long, "-o wide shows when each was last heard")
	assert.Contains(t, shown.String(), "  p: alive, last heard 11s ago")
	for _, flag := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(cmd.Long, -1) {
		assert.NotNil(t, cmd.Flags().Lookup(flag[1]), flag[0])
	}
}
