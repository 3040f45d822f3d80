package contract_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"nodekeeper.dev/placement/contract"
)

func TestMarkEndedRemembersTheLatestIncarnations(t *testing.T) {
	t.Parallel()
	annotations := map[string]string{}
	assert.Empty(t, contract.Ended(annotations))
	contract.MarkEnded(annotations, "u/1-15s")
	assert.Equal(t, map[string]string{contract.EndedAnnotation: "u/1-15s"}, annotations)
	contract.MarkEnded(annotations, "u/2-15s")
	contract.MarkEnded(annotations, "v/1-15s")
	contract.MarkEnded(annotations, "v/1-15s") // an answer was lost
	assert.Equal(t, map[string]string{contract.EndedAnnotation: "v/1-15s", contract.EndedBeforeAnnotation: "u/2-15s,u/1-15s"}, annotations)
	assert.Equal(t, []string{"v/1-15s", "u/2-15s", "u/1-15s"}, contract.Ended(annotations))
	for i := range 100 {
		contract.MarkEnded(annotations, fmt.Sprintf("w/%d-15s", i))
	}
	assert.Len(t, contract.Ended(annotations), 17)
	assert.Equal(t, "w/99-15s", contract.Ended(annotations)[0])
}
