package repository_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/test/repository"
)

// importRule is a rule of depguard.
type importRule struct {
	Allow []string
	Deny  []struct{ Pkg string }
}

// TestImportRulesHaveDistinctPrefixes: depguard compares an import with the last entry that does
// not follow it in alphabetical order, and with no other. After an entry nodekeeper.dev/internal/x,
// the entry nodekeeper.dev/ no longer denies the packages of the sharder.
func TestImportRulesHaveDistinctPrefixes(t *testing.T) {
	t.Parallel()
	root, err := repository.Root()
	require.NoError(t, err)
	content, err := os.ReadFile(filepath.Join(root, ".golangci.yaml"))
	require.NoError(t, err)
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct{ Rules map[string]importRule }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(content, &config))
	require.Greater(t, len(config.Linters.Settings.Depguard.Rules), 10)
	for name, rule := range config.Linters.Settings.Depguard.Rules {
		var denied []string
		for _, d := range rule.Deny {
			denied = append(denied, d.Pkg)
		}
		assertDistinct(t, name, rule.Allow)
		assertDistinct(t, name, denied)
	}
}

func assertDistinct(t *testing.T, rule string, prefixes []string) {
	t.Helper()
	for i, prefix := range prefixes {
		for j, other := range prefixes {
			if i != j && !strings.HasSuffix(prefix, "$") {
				assert.False(t, strings.HasPrefix(other, prefix), "rule %s: %s begins with %s", rule, other, prefix)
			}
		}
	}
}
