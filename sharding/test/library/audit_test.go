package library

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// auditPolicy records each write once, when it is answered, the bodies of patches of Secrets, and
// each list of ConfigMaps.
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
  - {group: apps, resources: [deployments, deployments/status]}
- level: Metadata
  verbs: [list]
  resources:
  - {group: "", resources: [configmaps]}
- level: None
`

// write is a write of an object in the audit log, or a list.
type write struct {
	Verb       string
	UserAgent  string
	RequestURI string
	ObjectRef  struct{ Resource, Subresource, Namespace, Name string }

	// ResponseStatus is the result. The message and the reason are those of an error.
	ResponseStatus struct {
		Code            int
		Message, Reason string
	}
	// RequestObject is the body of a patch.
	RequestObject json.RawMessage
	// RequestReceivedTimestamp is when the API server received the request.
	RequestReceivedTimestamp time.Time
}

// program returns the program that sent the write. Shards include their names in the user agent.
func (w write) program() string { return strings.TrimPrefix(w.UserAgent, "example-checksum/") }

// writes returns the writes of objects in a namespace, with those that failed, in the order of their
// responses.
func writes(t require.TestingT, namespace string) []write {
	return audited(t, namespace, func(w write) bool { return w.Verb != "list" && w.ObjectRef.Namespace == namespace })
}

// audited returns the requests in the audit log that contain a text and are wanted.
func audited(t require.TestingT, text string, isWanted func(write) bool) []write {
	file, err := os.Open(auditLog)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	var all []write
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !strings.Contains(lines.Text(), text) {
			continue
		}
		var w write
		if json.Unmarshal(lines.Bytes(), &w) != nil { // the last line may be incomplete
			continue
		}
		if isWanted(w) {
			all = append(all, w)
		}
	}
	require.NoError(t, lines.Err())
	return all
}
