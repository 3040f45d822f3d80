package main

import (
	"flag"
	"fmt"
	"io"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/sharding/internal/policy"
)

// options are the settings of a sharder.
type options struct {
	daemon.Options

	namespace   string
	leaderElect bool
	syncPeriod  time.Duration
	// concurrentMoves is how many objects of a resource are written at a time.
	concurrentMoves int
	admission       policy.Mode
	labelPrefix     v1alpha1.Prefix
	compat          compatMode
}

func (o *options) addFlags(fs *flag.FlagSet) {
	o.AddFlags(fs)
	fs.StringVar(&o.namespace, "namespace", "sharder-system", "`namespace` of the Lease of the leader; created if it is missing")
	fs.BoolVar(&o.leaderElect, "leader-elect", true, "write only while this replica leads; without it, there must be one replica")
	fs.DurationVar(&o.syncPeriod, "sync-period", 5*time.Minute, "the longest `duration` between two attempts at what fails, and between two passes that find objects to move")
	fs.IntVar(&o.concurrentMoves, "concurrent-moves", 100, "the maximum `number` of objects of each resource of a ring that are written at a time")
	fs.StringVar((*string)(&o.admission), "admission", string(policy.Auto), "the `mode` in which new objects are assigned to shards: \"policy\" (by admission policies, Kubernetes 1.36 or newer), \"none\" (by the sharder, after they are created) or \"auto\" (\"policy\" if the API server serves that, else \"none\")")
	fs.StringVar((*string)(&o.labelPrefix), "label-prefix", string(v1alpha1.DefaultPrefix), "`prefix` of the keys of sharding labels and annotations; set the same in the shards, and choose it before you create a ring: labels with another prefix are not removed")
	fs.StringVar((*string)(&o.compat), "compat", string(compatNone), "shards of another `project` that are served, too: \"timebertt\" (timebertt/kubernetes-controller-sharding, by its ControllerRings) or \"none\"")
}

func (o *options) parse(fs *flag.FlagSet, args []string, stderr io.Writer) error {
	if err := o.Parse(fs, args, stderr); err != nil {
		return err //nolint:wrapcheck // it is one line that says what to do
	}
	if problems := apivalidation.ValidateNamespaceName(o.namespace, false); len(problems) > 0 {
		return fmt.Errorf("--namespace %q is no namespace name: %s", o.namespace, problems[0])
	}
	if o.syncPeriod < time.Second {
		return fmt.Errorf("--sync-period %s: give 1s or more", o.syncPeriod)
	}
	if o.concurrentMoves < 1 || o.concurrentMoves > 1000 {
		return fmt.Errorf("--concurrent-moves %d: give a number from 1 to 1000", o.concurrentMoves)
	}
	if err := o.admission.Validate(); err != nil {
		return fmt.Errorf("--admission=%s: %w", o.admission, err)
	}
	if err := o.labelPrefix.Validate(); err != nil {
		return fmt.Errorf("--label-prefix: %w", err)
	}
	return o.compat.validate()
}

func (o *options) permissions() []daemon.Permission {
	needed := daemon.Permissions(v1alpha1.GroupName, "clusterrings", "", "get", "list", "watch", "patch")
	needed = append(needed, daemon.Permissions(v1alpha1.GroupName, "clusterrings/status", "", "patch")...)
	needed = append(needed, daemon.Permissions("", "namespaces", "", "list", "watch")...)
	needed = append(needed, daemon.Permissions("events.k8s.io", "events", "", "create", "patch")...)
	if o.leaderElect {
		needed = append(needed, daemon.Permissions("coordination.k8s.io", "leases", o.namespace, "get", "create", "update")...)
	}
	needed = append(needed, o.compatPermissions()...)
	return append(needed, o.admissionPermissions()...)
}

// admissionPermissions are what installing policies takes, and without admission, removing them. To
// create rings is for dry runs, which show whether the API server applies policies.
func (o *options) admissionPermissions() (needed []daemon.Permission) {
	verbs := []string{"get", "delete"}
	if o.admission != policy.None {
		verbs = []string{"get", "list", "watch", "create", "update", "delete"}
		needed = append(needed, daemon.Permissions(v1alpha1.GroupName, "clusterrings", "", "create")...)
		needed = append(needed, daemon.Permissions(policy.CRDKind.Group, "customresourcedefinitions", "", "get", "list", "watch")...)
	}
	for _, resource := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		needed = append(needed, daemon.Permissions(admissionregistrationv1.GroupName, resource, "", verbs...)...)
	}
	return needed
}
