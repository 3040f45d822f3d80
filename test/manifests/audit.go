package manifests

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/controlplane"
)

// auditPolicy makes the API server log each request once: the user, the verb and the object.
const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}`

// auditLogName is the name of the audit log, in the directory of the control plane.
const auditLogName = "audit.log"

// limitedPriority makes the API server admit critical pods only where a quota allows them, as GKE
// does.
const limitedPriority = `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [{
	"name": "ResourceQuota", "configuration": {
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration", "limitedResources": [{
			"resource": "pods", "matchScopes": [{
				"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical", "system-cluster-critical"]
			}]
		}]
	}
}]}`

// APIServerArgs returns the arguments of an API server with the given directory that make it write
// the audit log which [NewAudit] reads, and admit critical pods only where a quota allows them.
func APIServerArgs(dir string) (map[string][]string, error) {
	policy, admission := filepath.Join(dir, "audit-policy.yaml"), filepath.Join(dir, "admission.yaml")
	for path, content := range map[string]string{policy: auditPolicy, admission: limitedPriority} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	return map[string][]string{
		"audit-policy-file": {policy}, "audit-log-path": {filepath.Join(dir, auditLogName)}, "admission-control-config-file": {admission},
	}, nil
}

// Audit collects the requests of the service accounts of some namespaces from the audit log.
type Audit struct {
	// Done are the rights that they have used.
	Done Rights
	// Forbidden are the requests that were forbidden.
	Forbidden []string

	path       string
	offset     int64 // where the next read starts
	namespaces []string
}

// NewAudit starts at the end of the audit log of a control plane with [APIServerArgs].
func NewAudit(t *testing.T, plane *controlplane.ControlPlane, namespaces ...string) *Audit {
	t.Helper()
	path := filepath.Join(plane.Dir, auditLogName)
	info, err := os.Stat(path)
	require.NoError(t, err)
	return &Audit{path: path, offset: info.Size(), Done: Rights{}, namespaces: namespaces}
}

// Update reads the new entries. The log grows long, and tests poll often.
func (a *Audit) Update(t require.TestingT) {
	file, err := os.Open(a.path)
	require.NoError(t, err)
	defer func() { assert.NoError(t, file.Close()) }()
	_, err = file.Seek(a.offset, io.SeekStart)
	require.NoError(t, err)
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return // the last line may be incomplete: the next call reads it again
		}
		require.NoError(t, err)
		a.offset += int64(len(line))
		var r request
		if json.Unmarshal(line, &r) == nil { // the first line may be incomplete
			a.record(r)
		}
	}
}

// request is an entry of the audit log.
type request struct {
	User           struct{ Username string }
	Verb           string
	RequestURI     string
	ObjectRef      *struct{ Resource, Subresource, Namespace, APIGroup string }
	ResponseStatus struct{ Code int }
}

func (a *Audit) record(r request) {
	name, found := strings.CutPrefix(r.User.Username, "system:serviceaccount:")
	namespace, account, _ := strings.Cut(name, ":")
	// A request without an object is discovery. Every user is allowed to discover, and to review their
	// own user and permissions.
	if !found || !slices.Contains(a.namespaces, namespace) || r.ObjectRef == nil || strings.HasPrefix(r.ObjectRef.Resource, "selfsubject") {
		return
	}
	if r.ResponseStatus.Code == http.StatusForbidden {
		a.Forbidden = append(a.Forbidden, account+" "+r.Verb+" "+r.RequestURI)
		return
	}
	resource := r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		resource += "/" + r.ObjectRef.Subresource
	}
	one := Right{account, r.Verb, ResourceOf(r.ObjectRef.APIGroup, resource), r.ObjectRef.Namespace}
	if one.Resource == "namespaces" {
		one.Namespace = "" // the audit log reports a namespace as being in itself
	}
	a.Done[one] = true
}
