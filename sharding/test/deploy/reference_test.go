package deploy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/manifests"
	"nodekeeper.dev/test/reference"
)

// reasons contains the reason why the sharder needs each permission.
var reasons = map[string]string{
	"get, list, watch, create, patch clusterrings.sharding.nodekeeper.dev": "to read rings, and to add and remove their finalizer; `create` is for dry runs, " +
		"which show whether the API server applies the policies or calls the webhooks",
	"patch clusterrings/status.sharding.nodekeeper.dev":               "their status, with the table",
	"list, watch namespaces":                                          "to know which namespaces a ring selects",
	"get namespaces":                                                  "to check at the start that its namespace exists",
	"get, list, watch customresourcedefinitions.apiextensions.k8s.io": "a policy lists a custom resource only some time after its definition is established",
	"get, list, watch, create, update, delete mutatingadmissionpolicies.admissionregistration.k8s.io":            "the policies of rings",
	"get, list, watch, create, update, delete mutatingadmissionpolicybindings.admissionregistration.k8s.io":      "their bindings",
	"get, list, watch, create, update, patch, delete mutatingwebhookconfigurations.admissionregistration.k8s.io": "the webhooks of rings on Kubernetes 1.30 to 1.35",
	"get, list, watch, patch secrets": "the certificate of the webhooks",
	"get, list, watch, create, update, delete validatingadmissionpolicies.admissionregistration.k8s.io":       "the fences of rings, and the policy `sharding-anchor`, which matches no request",
	"get, list, watch, create, update, delete validatingadmissionpolicybindings.admissionregistration.k8s.io": "their bindings",
	"get configmaps":                                                     "the API server requires it of the creator of policies with ConfigMaps as parameters; the sharder itself reads only those of its namespace",
	"create leases.coordination.k8s.io":                                  "the Lease of the leader",
	"get, update leases.coordination.k8s.io":                             "the Lease of the leader",
	"get, list, watch, create, update, delete configmaps":                "the tables of rings, which the policies read",
	"create events":                                                      "the event that a replica leads",
	"create, patch events.events.k8s.io":                                 "events about rings",
	"get, list, watch, update, patch, delete leases.coordination.k8s.io": "to see which shards live, to label their Leases, and to take over and delete those of dead shards",
	"get pods": "optional: new shards wait until their pods are ready",
}

// TestReferenceHasThePermissions covers the base and the role for the namespaces of shards.
func TestReferenceHasThePermissions(t *testing.T) {
	rows, unused := map[string]string{}, maps.Clone(reasons)
	for _, b := range append(bindingsIn(t, base), bindingsIn(t, example)...) {
		where := "all of the cluster"
		switch {
		case b.Namespace == checksums:
			where = "the namespaces of shards"
		case b.Namespace != "":
			where = "`" + b.Namespace + "`"
		}
		for _, rule := range b.Rules {
			require.Len(t, rule.APIGroups, 1)
			require.Len(t, rule.Resources, 1)
			verbs, resource := strings.Join(rule.Verbs, ", "), manifests.ResourceOf(rule.APIGroups[0], rule.Resources[0])
			key := verbs + " " + resource
			assert.NotEmpty(t, reasons[key], "why: %q", key)
			delete(unused, key)
			text := "`" + resource + "`"
			if len(rule.ResourceNames) > 0 {
				text += ": only `" + strings.Join(rule.ResourceNames, "`, `") + "`"
			}
			order := cmp.Or(map[string]string{"all of the cluster": "0", "the namespaces of shards": "2"}[where], "1")
			rows[order+where+resource+verbs] = fmt.Sprintf("| %s | %s | %s | %s |\n", where, text, verbs, reasons[key])
		}
	}
	assert.Empty(t, unused, "reasons for rights that are not granted")
	var table strings.Builder
	table.WriteString("| in | resource | verbs | why |\n| --- | --- | --- | --- |\n")
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		table.WriteString(rows[key])
	}
	reference.Check(t, "sharding/docs/install.md", "permissions of sharder", table.String())
}

// bindingsIn returns what the manifests in a directory grant to the sharder.
func bindingsIn(t *testing.T, dir string) []manifests.Bound {
	t.Helper()
	objects := manifests.Render(t, dir)
	if dir == example { // binds a role of the base
		objects = append(objects, manifests.Render(t, base)...)
	}
	return slices.DeleteFunc(manifests.Bindings(t, objects), func(b manifests.Bound) bool {
		return b.Subject.Name != "sharder" || dir == example && b.Namespace != checksums
	})
}
