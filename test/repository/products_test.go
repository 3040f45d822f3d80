package repository_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/repository"
)

// TestProductsThatAChangeConcerns: hosted CI tests only the products that .ci/products prints.
func TestProductsThatAChangeConcerns(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	script, err := os.ReadFile(filepath.Join(root, ".ci", "products"))
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, content string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700))
	}
	commit := func() string {
		run(t, dir, "git", "add", "--all")
		run(t, dir, "git", "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "--quiet", "--message=x")
		return strings.TrimSpace(run(t, dir, "git", "rev-parse", "HEAD"))
	}
	write(".ci/products", string(script))
	run(t, dir, "git", "init", "--quiet")
	before := commit()
	const all = "keeper placement repository sharding"
	for file, want := range map[string]string{
		"internal/preserve/decide.go":                        "keeper repository",
		"internal/daemon/daemon.go":                          all,
		"sharding/shard/shard.go":                            "repository sharding",
		"sharding/shardlease/keeper.go":                      all,
		"sharding/deploy/base/sharder.yaml":                  "repository sharding",
		"sharding/docs/reference.md":                         "repository sharding",
		"placement/agent/agent.go":                           "placement repository",
		"docs/how-to/install.md":                             "keeper repository",
		"docs/explanation/labels.md":                         "keeper repository",
		"docs/cli/sessions/status.txt":                       "keeper repository",
		"docs/adr/0008-tools.md":                             "repository",
		"docs/development.md":                                "repository",
		"deploy/chart/nodekeeper/README.md":                  "keeper repository",
		"sharding/deploy/chart/sharder/README.md":            "repository sharding",
		"placement/deploy/chart/placement/values.yaml":       "placement repository",
		"docs/reference/metrics.md":                          "keeper repository",
		"README.md":                                          "keeper repository",
		"CHANGELOG.md":                                       "repository",
		"hack/controlplane/envtest.sum":                      all,
		"hack/helm/same.go":                                  "keeper repository",
		"hack/site/site.go":                                  "repository",
		"test/controlplane/controlplane.go":                  all,
		"go.mod":                                             all,
		"a/file/that/this/script/has/never/heard/of/main.go": all,
	} {
		write(file, "changed")
		after := commit()
		assert.ElementsMatch(t, strings.Fields(want), strings.Fields(run(t, dir, ".ci/products", before)), file)
		before = after
	}
	assert.ElementsMatch(t, strings.Fields(all), strings.Fields(run(t, dir, ".ci/products", "no-such-commit")))
}
