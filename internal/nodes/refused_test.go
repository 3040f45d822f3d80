package nodes_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nodekeeper.dev/internal/nodes"
)

// TestRefusalsOfOurPoliciesAreKnown reads the messages of the policies that refuse taints and
// annotations where a component is missing.
func TestRefusalsOfOurPoliciesAreKnown(t *testing.T) {
	for file, count := range map[string]int{"base/admission.yaml": 2, "chart/nodekeeper/templates/admission.yaml": 4, "components/preserve-taints/kustomization.yaml": 2, "components/preserve-annotations/kustomization.yaml": 1} {
		content, err := os.ReadFile(filepath.Join("..", "..", "deploy", filepath.FromSlash(file)))
		require.NoError(t, err)
		messages := regexp.MustCompile(`message: (.*the (?:spec|taints|annotations) .*)`).FindAllSubmatch(content, -1)
		assert.GreaterOrEqual(t, len(messages), count, file)
		for _, message := range messages {
			denied := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-1", errors.New(string(message[1])))
			assert.True(t, nodes.RefusedToNodekeeper(denied), "%s: %s", file, message[1])
		}
	}
	assert.False(t, nodes.RefusedToNodekeeper(apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-1", errors.New("by policy"))))
}
