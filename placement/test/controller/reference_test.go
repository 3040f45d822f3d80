package controller_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/test/pages"
	"nodekeeper.dev/test/reference"
	"nodekeeper.dev/test/repository"
)

const referencePage = "placement/docs/reference.md"

func TestReferenceHasTheFlags(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"controller", "agent"} {
		reference.Check(t, referencePage, "flags of "+command, reference.FlagTable(t, reference.FlagsOf(t, "placement", command), nil))
	}
}

var (
	ownKey = regexp.MustCompile("`(placement\\.nodekeeper\\.dev/[a-z-]+)`")
	// firstCell has the keys of a row.
	firstCell = regexp.MustCompile("(?m)^\\| ((?:`[^`]+`(?:, )?)+) \\|")
	inCode    = regexp.MustCompile("`([^`]+)`")
)

// TestReferenceHasTheKeys of labels and annotations, and those of the stored JSON, and no others.
func TestReferenceHasTheKeys(t *testing.T) {
	t.Parallel()
	root, err := repository.Root()
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(referencePage)))
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{
		contract.PoolLabel, contract.AcknowledgedAnnotation, contract.LeaseAnnotation, contract.ZoneAnnotation, contract.CapacityAnnotation,
		contract.EndedAnnotation, contract.EndedBeforeAnnotation, contract.UnschedulableAnnotation,
	}, all(ownKey, pages.Section(string(content), "Labels and annotations")))
	for section, example := range map[string]string{"The contract": "contract.json", "The acknowledgement": "ack.json"} {
		stored, err := os.ReadFile(filepath.Join(root, "placement", "contract", "testdata", example))
		require.NoError(t, err)
		var fields map[string]any
		require.NoError(t, json.Unmarshal(stored, &fields))
		cells := strings.Join(all(firstCell, pages.Section(string(content), section)), " ")
		assert.ElementsMatch(t, keysOf(fields), all(inCode, cells), section)
	}
	assert.Contains(t, pages.Section(string(content), "The contract"), "`"+contract.DataKey+"`")
}

// all returns what the group of a pattern matches.
func all(pattern *regexp.Regexp, text string) (found []string) {
	for _, one := range pattern.FindAllStringSubmatch(text, -1) {
		found = append(found, one[1])
	}
	return found
}

// keysOf returns the keys of an object, and those of the objects in its lists, behind NAME[].
func keysOf(fields map[string]any) (keys []string) {
	for key, value := range fields {
		keys = append(keys, key)
		list, _ := value.([]any)
		for _, one := range list {
			for _, below := range keysOf(one.(map[string]any)) {
				if below = key + "[]." + below; !slices.Contains(keys, below) {
					keys = append(keys, below)
				}
			}
		}
	}
	return keys
}
