package library

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// auditPolicy records each write once, when it is answered, and the bodies of patches of Secrets.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  verbs: [patch]
  resources:
  - {group: "", resources: [secrets]}
- level: Metadata
  verbs: [create, update, patch, delete]
  resources:
  - {group: "", resources: [secrets, configmaps]}
- level: None
`

// write is a write of an object in the audit log.
type write struct {
	Verb      string
	UserAgent string
	ObjectRef struct{ Resource, Namespace, Name string }

	ResponseStatus struct{ Code int }
	// RequestObject is the body of a patch.
	RequestObject json.RawMessage
	// RequestReceivedTimestamp is when the API server received the request.
	RequestReceivedTimestamp time.Time
}

// program returns the program that sent the write. Shards include their names in the user agent.
func (w write) program() string { return strings.TrimPrefix(w.UserAgent, "example-checksum/") }

// writes returns the successful writes of objects in a namespace, in the order of their responses.
func writes(t require.TestingT, namespace string) []write {
	file, err := os.Open(auditLog)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	var all []write
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !strings.Contains(lines.Text(), namespace) {
			continue
		}
		var w write
		if json.Unmarshal(lines.Bytes(), &w) != nil { // the last line may be incomplete
			continue
		}
		if w.ObjectRef.Namespace == namespace {
			all = append(all, w)
		}
	}
	require.NoError(t, lines.Err())
	return all
}
