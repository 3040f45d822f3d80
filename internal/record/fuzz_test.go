package record_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/record"
)

// Any ConfigMap is either unreadable or a record that is stored identically. An empty argument
// stands for a missing annotation.
func FuzzParse(f *testing.F) {
	const time = "2026-11-21T03:14:15Z"
	f.Add("2571", "source", "restored", "2650", time, "rack", "r7", "", false)
	f.Add("2571", "source", "", "", time, "example.com---SLASH---team", "blue", "", false)
	f.Add("2571", "", "", "", "", "---ESCAPED---type", "gpu", "", false)
	f.Add("2571", "", "", "", "", "---ESCAPED---labels_Urestored", "7", "", false)
	f.Add("2571", "", "", "", "", "---OTHER---x", "7", "", false)
	f.Add("2571", "", "", "", "", "labels_restored", "7", "", false)
	f.Add("02571", "source", "", "", time, "rack", "r7", "", false)
	f.Add("2571", "source", "restored", "", time, "rack", "r7", "", false)
	f.Add("2571", "source", "", "2650", time, "rack", "r7", "", false)
	f.Add("2571", "source", "", "", "0000-01-01T00:00:00+23:59", "rack", "r7", "", false)
	f.Add("2571", "source", "", "", "9999-12-31T23:59:59-23:59", "rack", "r7", "", false)
	f.Add("2571", "source", "", "", "0001-01-01T00:00:00.5Z", "rack", "r7", "", false)
	f.Add("2571", "source", "", "", time, "rack", "r7", "", true)
	f.Add("2571", "source", "", "", time, "rack", "r7", time, false)
	f.Add("2571", "source", "", "", time, "rack", "r7", "true", false)
	f.Add("2571", "source", "", "", time, "rack", "r7", "0000-01-01T00:00:00+23:59", false)
	f.Fuzz(func(t *testing.T, version, source, restoredUID, restoredRV, savedAt, dataKey, dataValue, ended string, binary bool) {
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "node-1", Annotations: map[string]string{}},
			Data:       map[string]string{dataKey: dataValue, "labels_restored": version},
		}
		for key, value := range map[string]string{
			"nodekeeper.dev/source-uid":   source,
			"nodekeeper.dev/restored-uid": restoredUID,
			"nodekeeper.dev/restored-rv":  restoredRV,
			"nodekeeper.dev/saved-at":     savedAt,
			"nodekeeper.dev/ended":        ended,
		} {
			if value != "" {
				cm.Annotations[key] = value
			}
		}
		if binary {
			cm.BinaryData = map[string][]byte{"binary": []byte(dataValue)}
		}
		got, err := record.Parse(cm)
		if err != nil {
			require.ErrorIs(t, err, record.ErrUnreadable)
			return
		}
		stored := got.ConfigMap(cm.Namespace)
		assert.Equal(t, cm.Data, stored.Data)
		again, err := record.Parse(stored)
		require.NoError(t, err)
		assert.True(t, got.Equal(*again), "%v and then %v", got, again)
		assert.Equal(t, got.SavedAt.Unix(), again.SavedAt.Unix(), "to the second")
		assert.Equal(t, got.Ended, again.Ended)
		assert.Equal(t, got.EndedAt.Unix(), again.EndedAt.Unix(), "to the second")
	})
}
