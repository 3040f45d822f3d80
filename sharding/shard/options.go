package shard

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/shardlease"
)

const (
	// namespaceFile contains the namespace of a pod's service account.
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	// sharderName is the holder identity that the sharder writes to the Lease of a dead shard.
	sharderName = "sharder"
	// defaultLeaveTimeout leaves ten seconds of a pod's default grace period of 30 seconds for
	// running reconcilers and for the release of the Lease.
	defaultLeaveTimeout = 20 * time.Second
)

// Options configures a shard. Ring and Kinds are required unless Standalone is set.
type Options struct {
	// Ring is the name of the ClusterRing.
	Ring string
	// Kinds are the kinds whose objects the sharder assigns: all resources and controlled resources
	// of the ring that this controller reads. The caches hold only the objects of this shard.
	Kinds []client.Object
	// Name is the name of this shard and of its Lease. It must be unique in the namespace and a
	// valid label value. In a ring without spec.shards.serviceAccounts, a shard in a pod must have
	// the name of the pod. If empty, it is $POD_NAME or, failing that, the host name.
	Name string
	// Namespace is the namespace of the Lease, as in the ring's spec.shards.namespace. If empty, it
	// is $POD_NAMESPACE or, failing that, the namespace of the pod's service account.
	Namespace string
	// LeaseDuration is how long the sharder waits for a renewal before it assigns new objects to
	// other shards. After twice this time it moves the objects of a silent shard. It must be a
	// whole number of seconds. If zero, it is 15 seconds.
	LeaseDuration time.Duration
	// LeaveTimeout bounds how long a terminating shard waits until its objects have moved. The
	// pod's grace period should be at least ten seconds longer. If zero, it is 20 seconds.
	LeaveTimeout time.Duration
	// KeepObjects makes the shard keep its objects and its Lease when it stops, for the next process
	// of its name, as in an update of a StatefulSet. Until that process starts, or the Lease has
	// expired for a LeaseDuration, no shard works on them, even if there will be no such process.
	// LeaveTimeout then has no effect. Do not set it in a Deployment.
	KeepObjects bool
	// LabelPrefix is the prefix of all sharding labels and annotations. It must match the
	// sharder's. If empty, it is [v1alpha1.DefaultPrefix].
	LabelPrefix v1alpha1.Prefix
	// Standalone makes this process work on all objects, without a ring or a Lease. Run only one
	// replica in this mode, or use leader election.
	Standalone bool
	// Acknowledged, if set, is called after this shard has released an object and no longer works
	// on it. It must be safe for concurrent use.
	Acknowledged func(Acknowledgement)
}

// Acknowledgement identifies an object that a shard has released.
type Acknowledgement struct {
	Kind schema.GroupVersionKind
	Key  client.ObjectKey
	UID  types.UID
	// ResourceVersion is the version that the releasing write created.
	ResourceVersion string
}

// completed returns the options with defaults applied, or an error that lists what is missing or
// invalid.
func (o Options) completed() (Options, error) {
	if o.LabelPrefix == "" {
		o.LabelPrefix = v1alpha1.DefaultPrefix
	}
	if o.LeaveTimeout == 0 {
		o.LeaveTimeout = defaultLeaveTimeout
	}
	if o.Acknowledged == nil {
		o.Acknowledged = func(Acknowledgement) {}
	}
	o.LeaseDuration = shardlease.DefaultDuration(o.LeaseDuration)
	if o.Standalone {
		return o, nil
	}
	var err error
	if o.Name == "" {
		if o.Name, err = defaultName(); err != nil {
			return o, err
		}
	}
	if o.Namespace == "" {
		if o.Namespace, err = defaultNamespace(); err != nil {
			return o, err
		}
	}
	return o, o.validate()
}

func (o Options) validate() error {
	var problems []error
	if o.Ring == "" {
		problems = append(problems, errors.New("set Ring to the name of the ClusterRing"))
	}
	if len(o.Kinds) == 0 {
		problems = append(problems, errors.New("set Kinds to the kinds of the ring's resources"))
	}
	if slices.Contains(o.Kinds, nil) {
		problems = append(problems, errors.New("one of the Kinds is nil"))
	}
	if invalid := validation.IsDNS1123Subdomain(o.Name); len(invalid) > 0 { // the name of a Lease must be one
		problems = append(problems, fmt.Errorf("the name of the shard, %q, %s", o.Name, invalid[0]))
	} else if invalid := content.IsLabelValue(o.Name); len(invalid) > 0 {
		problems = append(problems, fmt.Errorf("the name of the shard, %q, is not a valid label value: it %s", o.Name, invalid[0]))
	} else if o.Name == sharderName {
		problems = append(problems, fmt.Errorf("the name of the shard, %q, is reserved: the sharder uses it to take over Leases", o.Name))
	}
	if o.LeaseDuration < time.Second || o.LeaseDuration%time.Second != 0 {
		problems = append(problems, fmt.Errorf("LeaseDuration %s is not a whole number of seconds", o.LeaseDuration))
	}
	if err := o.LabelPrefix.Validate(); err != nil {
		problems = append(problems, fmt.Errorf("LabelPrefix: %w", err))
	}
	if o.LeaveTimeout < 0 {
		problems = append(problems, fmt.Errorf("LeaveTimeout %s is negative", o.LeaveTimeout))
	}
	return errors.Join(problems...)
}

func defaultName() (string, error) {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("determining the shard's name: set Name or POD_NAME: %w", err)
	}
	return strings.ToLower(name), nil
}

func defaultNamespace() (string, error) {
	if namespace := os.Getenv("POD_NAMESPACE"); namespace != "" {
		return namespace, nil
	}
	text, err := os.ReadFile(namespaceFile)
	if err != nil {
		return "", fmt.Errorf("determining the namespace of the shard's Lease: set Namespace or POD_NAMESPACE: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
