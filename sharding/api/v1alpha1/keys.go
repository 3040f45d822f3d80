package v1alpha1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Prefix is the prefix of the keys of all sharding labels and annotations. It must be a DNS
// subdomain.
type Prefix string

// DefaultPrefix is the prefix that the sharder and the shards use unless configured otherwise.
const DefaultPrefix Prefix = GroupName

// TimeberttPrefix is the prefix that the shards of timebertt/kubernetes-controller-sharding use.
const TimeberttPrefix Prefix = "alpha.sharding.timebertt.dev"

// AnyNamespace is the namespace of a ring whose shards can have their Leases in any namespace, as
// in timebertt/kubernetes-controller-sharding. The keys of such a ring have [TimeberttPrefix].
const AnyNamespace = "*"

// longestSubdomain is the longest label that this package puts before a prefix.
const longestSubdomain = "children."

// Validate returns an error if p is not a valid prefix. [TimeberttPrefix] is not valid, because it
// is reserved for the rings of that project.
func (p Prefix) Validate() error {
	if problems := validation.IsDNS1123Subdomain(longestSubdomain + string(p)); len(problems) > 0 {
		return fmt.Errorf("%q is not a valid prefix of label keys: %s", string(p), problems[0])
	}
	if p == TimeberttPrefix {
		return fmt.Errorf("%q is reserved for the rings of another project: choose another prefix", string(p))
	}
	return nil
}

// RingLabel returns the key of the label on a shard's Lease that names the shard's ring.
func (p Prefix) RingLabel() string {
	if p == TimeberttPrefix {
		return string(p) + "/controllerring"
	}
	return string(p) + "/ring"
}

// StateLabel returns the key of the label on a Lease in which the sharder reports the state of the
// shard. It is informational: no component reads it.
func (p Prefix) StateLabel() string { return string(p) + "/state" }

// HandoverLabel returns the key of the label on a Lease that controls how the shard may release an
// object. With the value [HandoverDirect], the shard may complete the hand-over in the same write:
// it assigns the object to the shard named by the drain label and removes the drain label. Without
// the label, or with any other value, it only removes the shard label.
func (p Prefix) HandoverLabel() string { return string(p) + "/handover" }

// ProtocolAnnotation returns the key of the annotation on a Lease that names the shard's hand-over
// protocol. If it is missing, the protocol is [Protocol1].
func (p Prefix) ProtocolAnnotation() string { return string(p) + "/protocol" }

// LeavingAnnotation returns the key of the annotation on a Lease that, with the value "true",
// asks the sharder to move the shard's objects.
func (p Prefix) LeavingAnnotation() string { return string(p) + "/leaving" }

// ShardLabel returns the key of the label that names the shard to which an object is assigned.
func (p Prefix) ShardLabel(ring string) string { return "shard." + string(p) + "/" + ring }

// DrainLabel returns the key of the label that asks a shard to release an object. The sharder sets
// it. Its value is the name of the shard that gets the object.
func (p Prefix) DrainLabel(ring string) string { return "drain." + string(p) + "/" + ring }

// ChildrenAnnotation returns the key of the annotation on a main object that records the
// resourceVersions of its children that the new shard's caches must have reached.
func (p Prefix) ChildrenAnnotation(ring string) string { return "children." + string(p) + "/" + ring }

// Finalizer keeps a ring until its policies and the sharding metadata of its objects are removed.
const Finalizer = GroupName + "/cleanup"

// HandoverDirect means that no object of the ring has children that must move first.
const HandoverDirect = "direct"

// The hand-over protocols. A shard acknowledges a drain by removing both labels in Protocol1, and
// by removing only the shard label in Protocol2.
const (
	Protocol1 = "1"
	Protocol2 = "2"
)
