package pages

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/test/reference"
	"nodekeeper.dev/test/repository"
)

// field is a field in the schema of a CRD.
type field struct {
	Type, Description string
	Default           json.RawMessage
	Enum              []string
	Properties        map[string]field
	Items             *field
	Required          []string
}

// rows writes a row for each field below this one.
func (f field) rows(path string, table *strings.Builder) {
	for _, name := range slices.Sorted(maps.Keys(f.Properties)) {
		sub := f.Properties[name]
		at, kind := strings.TrimPrefix(path+"."+name, "."), sub.Type
		below := sub
		if sub.Items != nil {
			at, kind, below = at+"[]", "list of "+sub.Items.Type+"s", *sub.Items
		}
		if len(sub.Enum) > 0 {
			kind = strings.Join(sub.Enum, ", ")
		}
		def := ""
		switch {
		case slices.Contains(f.Required, name):
			def = "required"
		case len(sub.Default) > 0 && string(sub.Default) != "{}":
			def = "`" + strings.Trim(string(sub.Default), `"`) + "`"
		}
		text := strings.Join(strings.Fields(sub.Description), " ")
		_, _ = fmt.Fprintf(table, "| `%s` | %s | %s | %s |\n", at, kind, def, strings.ReplaceAll(text, "|", "\\|"))
		if name != "conditions" && name != "namespaceSelector" { // they are those of every API
			below.rows(at, table)
		}
	}
}

func TestReferenceHasTheFieldsOfTheAPI(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(root, "sharding", "deploy", "crd", "sharding.nodekeeper.dev_clusterrings.yaml"))
	require.NoError(t, err)
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema field }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(content, &crd))
	require.Len(t, crd.Spec.Versions, 1)
	for _, part := range []string{"spec", "status"} {
		table := &strings.Builder{}
		table.WriteString("| field | type | default | |\n| --- | --- | --- | --- |\n")
		all := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[part]
		require.NotEmpty(t, all.Properties)
		all.rows(part, table)
		reference.Check(t, "sharding/docs/reference.md", "fields of "+part, table.String())
	}
}

func TestReferenceHasTheKeys(t *testing.T) {
	const p, ring = v1alpha1.DefaultPrefix, "<ring>"
	root, err := repository.Root()
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(root, "sharding", "docs", "reference.md"))
	require.NoError(t, err)
	for _, key := range []string{
		p.RingLabel(), p.StateLabel(), p.ProtocolAnnotation(), p.LeavingAnnotation(), p.ShardLabel(ring), p.DrainLabel(ring), p.ChildrenAnnotation(ring), v1alpha1.Finalizer,
	} {
		assert.Contains(t, string(content), "`"+key+"`")
	}
}
