package main

import (
	"flag"
	"fmt"
	"io"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/policy"
)

// options are the settings of the sharder.
type options struct {
	daemon.Options

	namespace   string
	leaderElect bool
	syncPeriod  time.Duration
	// concurrentMoves is the maximum number of concurrent writes per resource of a ring.
	concurrentMoves int
	admission       policy.Mode
	labelPrefix     v1alpha1.Prefix
	compat          compatMode
	webhook         webhookOptions
}

func (o *options) addFlags(fs *flag.FlagSet) {
	o.AddFlags(fs)
	fs.StringVar(&o.namespace, "namespace", "sharder-system", "`namespace` of the leader election Lease, and of the tables that admission policies use; created if it is missing")
	fs.BoolVar(&o.leaderElect, "leader-elect", true, "write only while this replica is the leader; if disabled, run only one replica")
	fs.DurationVar(&o.syncPeriod, "sync-period", 5*time.Minute, "the maximum `duration` between retries of a failing operation and between resyncs while they find objects to move, and the minimum between resyncs of a ring at rest")
	fs.IntVar(&o.concurrentMoves, "concurrent-moves", 100, "the maximum `number` of concurrent writes to objects of each resource of a ring")
	fs.StringVar((*string)(&o.admission), "admission", string(policy.Auto), "the `mode` in which new objects are assigned to shards: \"policy\" (by admission policies, Kubernetes 1.36 or newer), \"webhook\" (by a webhook in each sharder, Kubernetes 1.30 or newer), \"none\" (by the sharder, after they are created) or \"auto\" (\"policy\" if the API server supports it, otherwise \"webhook\")")
	fs.StringVar((*string)(&o.labelPrefix), "label-prefix", string(v1alpha1.DefaultPrefix), "`prefix` of the keys of sharding labels and annotations; it must match that of the shards; choose it before you create a ring, because labels with another prefix are not removed")
	fs.StringVar((*string)(&o.compat), "compat", string(compatNone), "another `project` whose shards are also supported: \"timebertt\" (timebertt/kubernetes-controller-sharding, through its ControllerRings) or \"none\"")
	o.webhook.addFlags(fs)
}

func (o *options) parse(fs *flag.FlagSet, args []string, stderr io.Writer) error {
	if err := o.Parse(fs, args, stderr); err != nil {
		return err //nolint:wrapcheck // the error needs no context
	}
	if problems := apivalidation.ValidateNamespaceName(o.namespace, false); len(problems) > 0 {
		return fmt.Errorf("--namespace %q is not a valid namespace name: %s", o.namespace, problems[0])
	}
	if o.syncPeriod < time.Second {
		return fmt.Errorf("--sync-period %s: must be at least 1s", o.syncPeriod)
	}
	if o.concurrentMoves < 1 || o.concurrentMoves > 1000 {
		return fmt.Errorf("--concurrent-moves %d: must be from 1 to 1000", o.concurrentMoves)
	}
	if err := o.admission.Validate(); err != nil {
		return fmt.Errorf("--admission=%s: %w", o.admission, err)
	}
	if err := o.labelPrefix.Validate(); err != nil {
		return fmt.Errorf("--label-prefix: %w", err)
	}
	if err := o.webhook.validate(); err != nil {
		return err
	}
	return o.compat.validate()
}

func (o *options) permissions() []daemon.Permission {
	needed := daemon.Permissions(v1alpha1.GroupName, "clusterrings", "", "get", "list", "watch", "patch")
	needed = append(needed, daemon.Permissions(v1alpha1.GroupName, "clusterrings/status", "", "patch")...)
	needed = append(needed, daemon.Permissions("", "namespaces", "", "list", "watch")...)
	needed = append(needed, daemon.Permissions("events.k8s.io", "events", metav1.NamespaceDefault, "create", "patch")...) // rings have no namespace
	if o.leaderElect {
		needed = append(needed, daemon.Permissions("coordination.k8s.io", "leases", o.namespace, "create")...)
		needed = append(needed, daemon.Named(program, daemon.Permissions("coordination.k8s.io", "leases", o.namespace, "get", "update"))...)
	}
	needed = append(needed, o.compatPermissions()...)
	return append(needed, o.admissionPermissions()...)
}

// admissionPermissions returns the permissions for installing policies and their tables, or webhooks
// and their certificate, and fences, and for removing those of other modes. The permission to create
// rings is for dry runs, which show whether the API server applies them.
func (o *options) admissionPermissions() (needed []daemon.Permission) {
	all, removal := []string{"get", "list", "watch", "create", "update", "delete"}, []string{"get", "delete"}
	policies, webhooks, fences := removal, removal, removal
	if o.mayUsePolicies() {
		policies = all
		// Without it, the API server refuses policies that have ConfigMaps as parameters.
		needed = append(needed, daemon.Permissions("", "configmaps", "", "get")...)
	}
	if o.mayUseWebhooks() {
		webhooks = all
		needed = append(needed, o.webhook.permissions(o.namespace)...)
	}
	if o.admission != policy.None {
		fences = all
		needed = append(needed, daemon.Permissions(v1alpha1.GroupName, "clusterrings", "", "create")...)
		needed = append(needed, daemon.Permissions(policy.CRDKind.Group, "customresourcedefinitions", "", "get", "list", "watch")...)
	}
	for _, resource := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		needed = append(needed, daemon.Permissions(admissionregistrationv1.GroupName, resource, "", policies...)...)
	}
	for _, resource := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
		needed = append(needed, daemon.Permissions(admissionregistrationv1.GroupName, resource, "", fences...)...)
	}
	needed = append(needed, daemon.Permissions(admissionregistrationv1.GroupName, "mutatingwebhookconfigurations", "", webhooks...)...)
	needed = append(needed, daemon.Permissions("", "configmaps", o.namespace, policies...)...)
	return needed
}

func (o *options) mayUsePolicies() bool {
	return o.admission == policy.Auto || o.admission == policy.ByPolicy
}

func (o *options) mayUseWebhooks() bool {
	return o.admission == policy.Auto || o.admission == policy.ByWebhook
}
