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
	// namespaceFile is where a pod finds the namespace of its service account.
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	// sharderName is the holder of the Lease of a dead shard.
	sharderName = "sharder"
	// defaultLeaveTimeout leaves ten seconds of the grace period of a pod, 30 seconds by default, to
	// reconcilers that are at work and to the release of the Lease.
	defaultLeaveTimeout = 20 * time.Second
)

// Options says which shard this process is, and what it shares out. Ring and Kinds are required
// unless Standalone is set.
type Options struct {
	// Ring is the name of the ClusterRing.
	Ring string
	// Kinds are the kinds whose objects the sharder assigns: those of all resources and controlled
	// resources of the ring that this controller reads. Its caches hold only the objects of this shard.
	Kinds []client.Object
	// Name is the name of this shard and of its Lease. It must be unique in the namespace, and a valid
	// label value. Empty: $POD_NAME, or else the host name.
	Name string
	// Namespace is that of the Lease, spec.shards.namespace of the ring. Empty: $POD_NAMESPACE, or else
	// the namespace of the pod's service account.
	Namespace string
	// LeaseDuration is how long the sharder waits for a renewal before it gives new objects to others, in
	// whole seconds. After twice this time it moves the objects of a silent shard. Zero: 15 seconds.
	LeaseDuration time.Duration
	// LeaveTimeout bounds how long a shard that is told to end waits until its objects have moved. Zero:
	// 20 seconds. The grace period of its pod should be at least ten seconds longer.
	LeaveTimeout time.Duration
	// LabelPrefix is the prefix of all sharding labels and annotations, the same as that of the sharder.
	// Empty: [v1alpha1.DefaultPrefix].
	LabelPrefix v1alpha1.Prefix
	// Standalone makes this process work on all objects, without a ring and without a Lease. Run only one
	// replica then, or use leader election.
	Standalone bool
	// Acknowledged is called after this shard has given an object away and no longer works on it. Nil:
	// nothing is called. Several goroutines can call it at once.
	Acknowledged func(Acknowledgement)
}

// Acknowledgement is an object that a shard has given away.
type Acknowledgement struct {
	Kind schema.GroupVersionKind
	Key  client.ObjectKey
	UID  types.UID
	// ResourceVersion is that of the write which gave it away.
	ResourceVersion string
}

// completed returns the options with their defaults, or an error that says what is missing.
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
	if invalid := validation.IsDNS1123Subdomain(o.Name); len(invalid) > 0 { // a Lease has it
		problems = append(problems, fmt.Errorf("the name of the shard, %q, %s", o.Name, invalid[0]))
	} else if invalid := content.IsLabelValue(o.Name); len(invalid) > 0 {
		problems = append(problems, fmt.Errorf("the name of the shard, %q, is no label value: it %s", o.Name, invalid[0]))
	} else if o.Name == sharderName {
		problems = append(problems, fmt.Errorf("the name of the shard, %q, is the sharder's: it takes over Leases by it", o.Name))
	}
	if o.LeaseDuration < time.Second || o.LeaseDuration%time.Second != 0 {
		problems = append(problems, fmt.Errorf("LeaseDuration %s is not in whole seconds", o.LeaseDuration))
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
		return "", fmt.Errorf("the shard has no name: set Name or POD_NAME: %w", err)
	}
	return strings.ToLower(name), nil
}

func defaultNamespace() (string, error) {
	if namespace := os.Getenv("POD_NAMESPACE"); namespace != "" {
		return namespace, nil
	}
	text, err := os.ReadFile(namespaceFile)
	if err != nil {
		return "", fmt.Errorf("the Lease of the shard has no namespace: set Namespace or POD_NAMESPACE: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
