package reference_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/revision"
	"nodekeeper.dev/internal/txn"
	"nodekeeper.dev/test/reference"
	"nodekeeper.dev/test/repository"
)

const objectsPage = "docs/reference/objects.md"

// The two incarnations of the examples.
const (
	formerUID = "0b8a8a0c-9b1c-4bb5-8a43-6a1f2ac1d7a1"
	nextUID   = "41f0fb0a-0d9b-4a53-9d0e-0b7d3c7d9c51"
)

func exampleTransaction() *corev1.ConfigMap {
	return txn.Transaction{
		Type: txn.Updated, Node: "node-1", UID: formerUID, Revision: revision.MustParse("2571"), Marker: "2214", Restored: true,
		Labels:  map[string]string{"kubernetes.io/os": "linux", "example.com/team": "blue", "rack": "r7", "zone": "a"},
		Machine: "kubernetes.io/os", Unclear: "zone", Withdrawn: "example.com/feature", Overruled: "example.com/pool", Edited: "rack", Owners: `[{"manager":"kubectl-label","operation":"Update","keys":"rack"}]`,
		ObservedAt: time.Date(2026, 11, 21, 3, 14, 15, 926535000, time.UTC), FoundsRecord: true, AtOnce: true,
	}.ConfigMap("node-metadata-transactions")
}

func exampleRecord() *corev1.ConfigMap {
	machine := identity.Identity{ProviderID: "aws:///eu-central-1a/i-0d02aa4e", SystemUUID: "ec2d02aa-4e00-4b7c-8f6e-2d9a6b1c0f11"}
	return record.Record{
		Node: "node-1", Revision: revision.MustParse("2571"), Source: formerUID,
		Restored: record.Restoration{UID: nextUID, Revision: revision.MustParse("2650")},
		Labels: map[string]string{
			"kubernetes.io/os": "linux", "example.com/team": "blue", "rack": "r7", "zone": "a", "node-role.kubernetes.io/worker": "",
		},
		Machine: "kubernetes.io/os", Unclear: "zone", Overruled: "example.com/pool", Owners: `[{"manager":"kubectl-label","operation":"Update","keys":"rack"}]`, Ended: true, EndedAt: time.Date(2026, 11, 21, 3, 14, 0, 0, time.UTC),
		Identity: record.Identity{UID: nextUID, Identity: machine},
		Withheld: []record.Withheld{{Labels: map[string]string{"node-role.kubernetes.io/ingress": ""}, Source: formerUID, State: record.WaitingFor(nextUID)}},
		SavedAt:  time.Date(2026, 11, 21, 3, 14, 15, 0, time.UTC),
	}.ConfigMap("node-metadata")
}

func exampleFloor() *corev1.ConfigMap {
	return record.Record{
		Node: "node-1", Revision: revision.MustParse("2801"), Floor: true, SavedAt: time.Date(2026, 11, 21, 3, 14, 15, 0, time.UTC),
	}.ConfigMap("node-metadata")
}

// TestReferenceHasTheObjects as the code stores them.
func TestReferenceHasTheObjects(t *testing.T) {
	for name, cm := range map[string]*corev1.ConfigMap{"transaction": exampleTransaction(), "record": exampleRecord(), "floor": exampleFloor()} {
		cm.APIVersion, cm.Kind = "v1", "ConfigMap"
		text, err := yaml.Marshal(cm)
		require.NoError(t, err)
		reference.Check(t, objectsPage, name, "```yaml\n"+string(text)+"```\n")
	}
}

// TestReferenceHasTheKeysOfConfigMaps checks the keys that store labels, annotations and taints.
func TestReferenceHasTheKeysOfConfigMaps(t *testing.T) {
	var table strings.Builder
	table.WriteString("| what is kept | key in the ConfigMap | value |\n| --- | --- | --- |\n")
	row := func(what, key, value string) {
		dataKey, dataValue := labels.EncodeEntry(key, value)
		table.WriteString("| " + what + " | `" + dataKey + "` | `" + dataValue + "` |\n")
	}
	row("label `rack=r7`", "rack", "r7")
	row("label `example.com/team=blue`", "example.com/team", "blue")
	row("label `type=edge`: the key has another meaning there", "type", "edge")
	row("label `a---SLASH---b=1`: so that it differs from `a/b`", "a---SLASH---b", "1")
	row("annotation `example.com/owner=ann`", labels.AnnotationKey("example.com/owner"), "ann")
	row("taint `dedicated=gpu:NoSchedule`", labels.TaintKey("dedicated", string(corev1.TaintEffectNoSchedule)), "gpu")
	reference.Check(t, objectsPage, "keys", table.String())
}

// keyRow is a row of a table that begins with a key of nodekeeper's.
var keyRow = regexp.MustCompile("(?m)^\\| (?:label|annotation) `([^`]+)` \\|")

// TestReferenceExplainsEveryKey of the labels and annotations that the code writes, and no others.
func TestReferenceExplainsEveryKey(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(objectsPage)))
	require.NoError(t, err)
	sections := map[string][]string{
		"Transaction": keysOf([]string{txn.MalformedLabel, txn.MalformedNameAnnotation}, exampleTransaction()),
		"Record":      keysOf([]string{record.AwaySinceAnnotation, record.RefusalsAnnotation}, exampleRecord(), exampleFloor()),
	}
	for heading, want := range sections {
		_, section, isThere := strings.Cut(string(content), "\n## "+heading+"\n")
		require.True(t, isThere, heading)
		section, _, _ = strings.Cut(section, "\n## ")
		var explained []string
		for _, found := range keyRow.FindAllStringSubmatch(section, -1) {
			explained = append(explained, found[1])
		}
		assert.ElementsMatch(t, want, explained, heading)
	}
}

// keysOf returns the keys of labels and annotations of ConfigMaps, each once, and some more.
func keysOf(more []string, all ...*corev1.ConfigMap) []string {
	seen := map[string]bool{}
	for _, key := range more {
		seen[key] = true
	}
	for _, cm := range all {
		for key := range cm.Labels {
			seen[key] = true
		}
		for key := range cm.Annotations {
			seen[key] = true
		}
	}
	return slices.Collect(maps.Keys(seen))
}
