package processor_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/processor/telemetry"
)

// maxNote is the maximum length in bytes that the API server accepts.
const maxNote = 1024

func TestNoteIsCutToWhatTheAPIServerTakes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for name, tc := range map[string]struct{ text, want string }{
		"short":                       {"node-1: 100%", "node-1: 100%"},
		"as long as it may be":        {strings.Repeat("x", maxNote), strings.Repeat("x", maxNote)},
		"too long":                    {strings.Repeat("x", maxNote+1), strings.Repeat("x", maxNote)},
		"no letter is cut in two":     {strings.Repeat("x", maxNote-1) + "é", strings.Repeat("x", maxNote-1)},
		"no long letter is cut":       {strings.Repeat("x", maxNote-3) + "😀😀", strings.Repeat("x", maxNote-3)},
		"what is no UTF-8 is dropped": {"a\xffb", "ab"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := telemetry.Note("%s", tc.text)
			require.True(t, utf8.ValidString(got))
			assert.Equal(t, tc.want, got)
			event := &eventsv1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: c.records, GenerateName: "note-"}, EventTime: metav1.NowMicro(),
				Type: corev1.EventTypeWarning, Reason: "Test", Action: "Test", ReportingController: "test", ReportingInstance: "test",
				Regarding: corev1.ObjectReference{Kind: "ConfigMap", Namespace: c.records, Name: "any"}, Note: got,
			}
			require.NoError(t, c.Create(t.Context(), event))
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(event), event))
			assert.Equal(t, got, event.Note)
		})
	}
}
