package v1alpha1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Prefix is the prefix of the keys of all sharding labels and annotations. It must be a DNS
// subdomain.
type Prefix string

// DefaultPrefix is the prefix unless the sharder and the shards are told another one.
const DefaultPrefix Prefix = GroupName

// TimeberttPrefix is the prefix that the shards of timebertt/kubernetes-controller-sharding know.
const TimeberttPrefix Prefix = "alpha.sharding.timebertt.dev"

// AnyNamespace as the namespace of the shards of a ring means that their Leases can be in any one, as
// those of timebertt/kubernetes-controller-sharding. The keys of such a ring have [TimeberttPrefix].
const AnyNamespace = "*"

// longestSubdomain is the longest that this package puts before a prefix.
const longestSubdomain = "children."

// Validate returns an error that says what is wrong with a prefix, nil if nothing is. The prefix of
// timebertt/kubernetes-controller-sharding is for the rings of that project alone.
func (p Prefix) Validate() error {
	if problems := validation.IsDNS1123Subdomain(longestSubdomain + string(p)); len(problems) > 0 {
		return fmt.Errorf("%q is not a valid prefix of labels: %s", string(p), problems[0])
	}
	if p == TimeberttPrefix {
		return fmt.Errorf("%q is for rings of another project: choose another prefix", string(p))
	}
	return nil
}

// RingLabel returns the key of the label that names the ring of a shard, on its Lease.
func (p Prefix) RingLabel() string {
	if p == TimeberttPrefix {
		return string(p) + "/controllerring"
	}
	return string(p) + "/ring"
}

// StateLabel returns the key of the label in which the sharder says on a Lease what it takes the
// state of the shard to be. It is for people: nobody decides by it.
func (p Prefix) StateLabel() string { return string(p) + "/state" }

// HandoverLabel returns the key of the label in which the sharder says on a Lease how the shard may
// give an object away. With [HandoverDirect] it may itself write what else admission or the sharder
// writes after it: the object has the shard that the label drain named, and no label drain. Without
// the label, or with another value, it removes the shard label only.
func (p Prefix) HandoverLabel() string { return string(p) + "/handover" }

// ProtocolAnnotation returns the key of the annotation that says on a Lease which hand-over protocol
// the shard follows, [Protocol1] if it is missing.
func (p Prefix) ProtocolAnnotation() string { return string(p) + "/protocol" }

// LeavingAnnotation returns the key of the annotation by which a shard says on its Lease that it
// wants to give its objects away, with the value "true".
func (p Prefix) LeavingAnnotation() string { return string(p) + "/leaving" }

// ShardLabel returns the key of the label that names the shard that an object is assigned to.
func (p Prefix) ShardLabel(ring string) string { return "shard." + string(p) + "/" + ring }

// DrainLabel returns the key of the label by which the sharder asks a shard to give an object away.
// It names the shard that gets it.
func (p Prefix) DrainLabel(ring string) string { return "drain." + string(p) + "/" + ring }

// ChildrenAnnotation returns the key of the annotation that tells the new shard of a main object up
// to which resourceVersion of its children its caches must be.
func (p Prefix) ChildrenAnnotation(ring string) string { return "children." + string(p) + "/" + ring }

// Finalizer keeps a ring until its policies and the sharding metadata of its objects are gone.
const Finalizer = GroupName + "/cleanup"

// HandoverDirect says that no object of the ring has children that must move before it.
const HandoverDirect = "direct"

// The hand-over protocols. In Protocol1 a shard acknowledges by removing both labels, in Protocol2 by
// removing the shard label alone.
const (
	Protocol1 = "1"
	Protocol2 = "2"
)
