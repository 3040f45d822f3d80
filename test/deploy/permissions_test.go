package deploy_test

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

// permission is a rule of a role, as the reference shows it.
type permission struct {
	subject, namespace, resource, names, verbs string
}

// key is the key of a permission in reasons.
func (p permission) key() string {
	return fmt.Sprintf("%s: %s %s in %s", p.subject, strings.ReplaceAll(p.verbs, ", ", ","), p.resource, cmp.Or(p.namespace, "all"))
}

// permissions returns the permissions that manifests grant to each service account and group.
func permissions(t *testing.T, objects []object) map[permission]bool {
	t.Helper()
	found := map[permission]bool{}
	for _, b := range manifests.Bindings(t, objects) {
		for _, rule := range b.Rules {
			require.Len(t, rule.APIGroups, 1)
			require.Len(t, rule.Resources, 1)
			found[permission{
				b.Subject.Name, b.Namespace, manifests.ResourceOf(rule.APIGroups[0], rule.Resources[0]),
				strings.Join(rule.ResourceNames, "`, `"), strings.Join(rule.Verbs, ", "),
			}] = true
		}
	}
	return found
}

// Reasons that several subjects share.
const (
	checksNamespaces = "to check at the start that the namespaces are there"
	isOnTheRing      = "its place on the ring: its own Lease, and those of the other replicas"
	asksForTheVerb   = "the admission policies require it of every writer of nodekeeper's ConfigMaps"
	showsReplicas    = "`status`, `show`, `ui`: the replicas and their settings"
	tellsClusters    = "its uid identifies the cluster for `export` and `import`"
	missesWebhooks   = "`status` reports that the API server asks webhooks and none is ready"
	eventsOfNodes    = "`show`, `explain`: events about Nodes"
	eventsOfRecords  = "`show`, `explain`: events about the record"
	readsLabels      = "every command that shows what is saved or pending"
)

// reasons contains the reason why each subject needs each permission.
var reasons = map[string]string{
	"watcher: get,list,watch nodes in all": "the labels of the Nodes; it reads metadata only, unless `--preserve-taints` is set",
	"watcher: get namespaces in all":       checksNamespaces,
	"watcher: get,list,watch,create,update,delete leases.coordination.k8s.io in nodekeeper-system":          isOnTheRing,
	"watcher: create,get,list,watch,patch configmaps in node-metadata-transactions":                         "to record events, and to see what other watchers have recorded",
	"watcher: write labels.nodekeeper.dev in node-metadata-transactions":                                    asksForTheVerb,
	"watcher: list,watch configmaps in node-metadata":                                                       "to compare Nodes with their records",
	"watcher: create,patch events.events.k8s.io in default":                                                 "events about Nodes; without it the events are missing, nothing else",
	"processor: get,patch nodes in all":                                                                     "to restore labels, to remove the startup taint, and to add and remove the finalizer",
	"processor: list nodes in all":                                                                          "to read the current resourceVersion; to warn at the start of Nodes that still have the finalizer; with `--retention`, to find nodes that are away",
	"processor: watch nodes in all":                                                                         "to see Nodes that are deleted and have the finalizer",
	"processor: get namespaces in all":                                                                      checksNamespaces,
	"processor: get,list,watch,create,update,delete leases.coordination.k8s.io in nodekeeper-system":        isOnTheRing,
	"processor: get,list,watch,create,patch,delete configmaps in node-metadata-transactions":                "to read transactions, to quarantine them, and to remove them when their effect is stored",
	"processor: get,list,create,update,delete leases.coordination.k8s.io in node-metadata-transactions":     "the locks of nodes",
	"processor: create,patch events.events.k8s.io in node-metadata-transactions":                            "events about malformed transactions; without it the events are missing, nothing else",
	"processor: write labels.nodekeeper.dev in node-metadata-transactions":                                  asksForTheVerb,
	"processor: get,list,watch,create,update configmaps in node-metadata":                                   "to save labels",
	"processor: patch,delete configmaps in node-metadata":                                                   "to note since when a node is away, and to remove its record",
	"processor: get,create,update leases.coordination.k8s.io in node-metadata":                              "the Lease `nodekeeper-retention`, which notes each sweep",
	"processor: create,patch events.events.k8s.io in node-metadata":                                         "events about unreadable records; without it the events are missing, nothing else",
	"processor: write labels.nodekeeper.dev in node-metadata":                                               asksForTheVerb,
	"processor: create,patch events.events.k8s.io in default":                                               "events about Nodes; without it the events are missing, nothing else",
	"webhook: get namespaces in all":                                                                        checksNamespaces,
	"webhook: get,list,watch,patch mutatingwebhookconfigurations.admissionregistration.k8s.io in all":       "to write `caBundle`, so that the API server trusts the certificate",
	"webhook: get,list,watch,patch secrets in nodekeeper-system":                                            "to issue, renew and serve the certificate",
	"webhook: get,list,watch secrets in nodekeeper-system":                                                  "to serve the certificate",
	"webhook: get,list,watch,create,update,delete leases.coordination.k8s.io in nodekeeper-system":          "its own Lease, which shows it to `kubectl nodekeeper status`, and the settings of the processors on theirs. An admission policy allows it to write only Leases of webhooks",
	"webhook: list,watch configmaps in node-metadata":                                                       "to answer with the saved labels",
	"nodekeeper:viewers: list,watch nodes in all":                                                           "every command about nodes",
	"nodekeeper:viewers: get namespaces in all":                                                             tellsClusters,
	"nodekeeper:viewers: get mutatingwebhookconfigurations.admissionregistration.k8s.io in all":             missesWebhooks,
	"nodekeeper:viewers: list,watch leases.coordination.k8s.io in nodekeeper-system":                        showsReplicas,
	"nodekeeper:viewers: get,list,watch configmaps in node-metadata-transactions":                           readsLabels,
	"nodekeeper:viewers: list leases.coordination.k8s.io in node-metadata-transactions":                     "`show`: who has the lock of a node",
	"nodekeeper:viewers: get,list,watch configmaps in node-metadata":                                        readsLabels,
	"nodekeeper:viewers: list events.events.k8s.io in node-metadata":                                        eventsOfRecords,
	"nodekeeper:viewers: list events.events.k8s.io in default":                                              eventsOfNodes,
	"nodekeeper:editors: list,watch nodes in all":                                                           "every command about nodes",
	"nodekeeper:editors: get namespaces in all":                                                             tellsClusters,
	"nodekeeper:editors: get mutatingwebhookconfigurations.admissionregistration.k8s.io in all":             missesWebhooks,
	"nodekeeper:editors: list,watch leases.coordination.k8s.io in nodekeeper-system":                        showsReplicas,
	"nodekeeper:editors: get,list,watch configmaps in node-metadata-transactions":                           readsLabels,
	"nodekeeper:editors: create configmaps in node-metadata-transactions":                                   "`save`, `restore`; `set` and `import`, for nodes that are there",
	"nodekeeper:editors: patch configmaps in node-metadata-transactions":                                    "`retry`; `save`, `restore` and `set`, if a watcher's transaction must not wait",
	"nodekeeper:editors: delete configmaps in node-metadata-transactions":                                   "`discard`",
	"nodekeeper:editors: list leases.coordination.k8s.io in node-metadata-transactions":                     "`show`: who has the lock of a node",
	"nodekeeper:editors: get,create,update,delete leases.coordination.k8s.io in node-metadata-transactions": "`prune`, which takes the lock of a node",
	"nodekeeper:editors: write labels.nodekeeper.dev in node-metadata-transactions":                         asksForTheVerb,
	"nodekeeper:editors: get,list,watch configmaps in node-metadata":                                        readsLabels,
	"nodekeeper:editors: update configmaps in node-metadata":                                                "`set`, `forget`, `prune`; `import --overwrite`, and `import` of nodes that were forgotten",
	"nodekeeper:editors: create configmaps in node-metadata":                                                "`import`",
	"nodekeeper:editors: list events.events.k8s.io in node-metadata":                                        eventsOfRecords,
	"nodekeeper:editors: write labels.nodekeeper.dev in node-metadata":                                      asksForTheVerb,
	"nodekeeper:editors: list events.events.k8s.io in default":                                              eventsOfNodes,
}

// conditions are the variants of the manifests that the reference distinguishes, with their
// descriptions.
var conditions = []struct {
	with variant
	text string
}{
	{variant{base, nil}, ""},
	{variant{base, []string{withRetention}}, "with the component `retention`"},
	{variant{base, []string{withProtection}}, "with the component `protection`"},
	{variant{base, []string{withAdmission}}, ""}, // the only one with webhooks
	{variant{base, []string{withAdmission, withCertManager}}, "with the component `cert-manager`"},
}

// TestReferenceHasThePermissions covers the programs and users. Each permission has a reason.
func TestReferenceHasThePermissions(t *testing.T) {
	t.Parallel()
	when := map[permission]string{}
	for _, condition := range conditions {
		for p := range permissions(t, condition.with.render(t)) {
			if _, known := when[p]; !known {
				when[p] = condition.text
			}
		}
	}
	rotates := permissions(t, variant{base, []string{withAdmission}}.render(t))
	for p := range permissions(t, variant{base, []string{withAdmission, withCertManager}}.render(t)) {
		delete(rotates, p)
	}
	for p := range rotates {
		when[p] = "without the component `cert-manager`"
	}
	for p := range permissions(t, render(t, "users")) {
		when[p] = ""
	}
	unused := maps.Clone(reasons)
	tables := map[string]*strings.Builder{}
	for _, p := range slices.SortedFunc(maps.Keys(when), inOrder) {
		table := tables[p.subject]
		if table == nil {
			table = &strings.Builder{}
			table.WriteString("| in | resource | verbs | if | why |\n| --- | --- | --- | --- | --- |\n")
			tables[p.subject] = table
		}
		assert.NotEmpty(t, reasons[p.key()], "why: %q", p.key())
		delete(unused, p.key())
		resource := "`" + p.resource + "`"
		if p.names != "" {
			resource += ": only `" + p.names + "`"
		}
		where := "all of the cluster"
		if p.namespace != "" {
			where = "`" + p.namespace + "`"
		}
		_, _ = fmt.Fprintf(table, "| %s | %s | %s | %s | %s |\n", where, resource, p.verbs, when[p], reasons[p.key()])
	}
	assert.Empty(t, unused, "reasons for rights that are not granted")
	assert.Len(t, tables, 5)
	for subject, table := range tables {
		reference.Check(t, "docs/reference/rbac.md", "permissions of "+subject, table.String())
	}
}

// inOrder is the order of the reference: the whole cluster, the namespace of the programs, the
// namespaces of stored data, and the others.
func inOrder(a, b permission) int {
	places := []string{"", systemNamespace, transactions, metadata}
	place := func(p permission) int {
		if i := slices.Index(places, p.namespace); i >= 0 {
			return i
		}
		return len(places)
	}
	return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a.resource, b.resource), -cmp.Compare(len(a.verbs), len(b.verbs)), cmp.Compare(a.verbs, b.verbs))
}
