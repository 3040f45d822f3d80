package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"nodekeeper.dev/placement/contract"
)

const (
	// DefaultLeaseDuration is the default of Options.LeaseDuration.
	DefaultLeaseDuration = 15 * time.Second
	// stopTime is how long a Worker may take to return, and how long the agent waits for Workers
	// before it acknowledges what has been done so far.
	stopTime = 5 * time.Second
	// renewals is the number of renewals per lease duration, retries that of attempts per renewal.
	renewals, retries = 3, 5
)

// Worker works on virtual replicas.
type Worker interface {
	// Work works on one virtual replica until ctx is canceled. It calls ready once it works, and
	// returns only when it has stopped, within five seconds. If it returns earlier, with an error
	// or without, its resource is failing, and Work is called again after a second, and up to a
	// minute after more failures. Work is called concurrently for different virtual replicas.
	Work(ctx context.Context, r Replica, ready func()) error
}

// Replica is one virtual replica. It does not change while a Worker works on it.
type Replica struct {
	Resource contract.Reference
	// Index is the number of the virtual replica, Of the number of all of its resource.
	Index, Of int32
	// Epoch is higher for every new owner of the virtual replica.
	Epoch int64
	// Payload is data from the controller of the resource, or nil.
	Payload json.RawMessage
}

// OnLostLease is what happens to Workers whose pod cannot renew its Lease in time. It does not matter
// for a Lease that was deleted, released or taken over: the agent then always stops all Workers as
// soon as it learns of that, and joins the pool again.
type OnLostLease int

const (
	// Stop stops all Workers when the Lease has not been renewed for the renew deadline. All that
	// return in time have returned before another pod gets their work. It is the zero value.
	Stop OnLostLease = iota
	// Keep lets the Workers go on, for work that may be done twice at a time. As long as the agent
	// cannot reach the API server, nothing stops them but the end of ctx. If the API server was
	// away for all pods, and they renew their Leases within the lease duration after that, nothing
	// was interrupted. If only this pod was cut off, other pods get its work after twice the lease
	// duration, while the Workers of this pod still do it: until the agent reads that the Lease is
	// not its own any longer, and for the time that they need to return. Where hand-overs are
	// exclusive, those of other pods have higher epochs.
	//
	// A contract is followed all the while, so Workers stop, too, when a contract takes their work
	// away. A process that is started while the API server is away does no work.
	Keep
)

// Options configures [Run]. Zone, Capacity, LeaseDuration, OnLostLease and Renewed are optional.
type Options struct {
	// Namespace is the namespace of the pod, Pool the name of its pool.
	Namespace, Pool string
	// Pod and PodUID identify the pod. Only one process per pod may run the agent.
	Pod    string
	PodUID types.UID
	// Zone is the zone of the pod.
	Zone string
	// Capacity is the maximum load of this pod. If zero, the pool's applies.
	Capacity int32
	// LeaseDuration is in whole seconds. If zero, it is [DefaultLeaseDuration].
	LeaseDuration time.Duration
	// OnLostLease is what happens to Workers when the Lease cannot be renewed in time. If zero, it is
	// [Stop].
	OnLostLease OnLostLease
	// Renewed, if set, is called after each renewal of the Lease with the time until which Workers
	// may run unless the Lease is renewed again; [Keep] does not change that time. It is a time by
	// CLOCK_BOOTTIME, which goes on while the machine is suspended. Renewed must not block.
	Renewed func(until time.Duration)
}

// RenewDeadline returns the time without a renewal after which all Workers are canceled, unless the
// agent has [Keep].
func RenewDeadline(leaseDuration time.Duration) time.Duration { return leaseDuration * 2 / renewals }

// LostStopTime returns how long Workers may take to return when the Lease has not been renewed for
// the renew deadline: five seconds, or less for a short Lease, so that even with clock rates that
// differ by 30 % all have returned before another pod gets their work.
func LostStopTime(leaseDuration time.Duration) time.Duration {
	return min(stopTime, leaseDuration*2/renewals)
}

// completed returns the options with defaults, or an error in one line with advice.
func (o Options) completed() (Options, error) {
	if o.LeaseDuration == 0 {
		o.LeaseDuration = DefaultLeaseDuration
	}
	if o.Renewed == nil {
		o.Renewed = func(time.Duration) {}
	}
	switch {
	case o.Namespace == "" || o.Pool == "" || o.Pod == "" || o.PodUID == "":
		return o, errors.New("the namespace, the pool, the name and the UID of the pod are required")
	case len(validation.IsDNS1123Label(o.Namespace))+len(validation.IsValidLabelValue(o.Pool))+len(validation.IsDNS1123Subdomain(o.Pod)) > 0, strings.Contains(string(o.PodUID), "/"):
		return o, fmt.Errorf("pod %q with UID %q in namespace %q and pool %q: not all of these names are valid", o.Pod, o.PodUID, o.Namespace, o.Pool)
	case o.Capacity < 0:
		return o, fmt.Errorf("the capacity %d is invalid: it must be 0 or more", o.Capacity)
	case o.LeaseDuration < time.Second || o.LeaseDuration%time.Second != 0 || o.LeaseDuration > math.MaxInt32*time.Second:
		return o, fmt.Errorf("the lease duration %s is invalid: it must be whole seconds", o.LeaseDuration)
	case o.OnLostLease != Stop && o.OnLostLease != Keep:
		return o, fmt.Errorf("OnLostLease %d is invalid: it must be Stop or Keep", o.OnLostLease)
	}
	return o, nil
}

func (o *Options) renewPeriod() time.Duration { return o.LeaseDuration / renewals }
func (o *Options) retryPeriod() time.Duration { return o.renewPeriod() / retries }
