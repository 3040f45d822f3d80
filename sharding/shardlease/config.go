package shardlease

import (
	"maps"
	"time"

	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

const (
	// defaultDuration makes a shard renew every five seconds; an idle shard writes nothing else.
	defaultDuration = 15 * time.Second
	// releaseTimeout bounds the release of the Lease at shutdown. A Lease that is not released
	// expires.
	releaseTimeout = 2 * time.Second
	// renewals is the number of renewals per lease duration. retries is the number of attempts per
	// renewal period.
	renewals, retries = 3, 5
)

// Config configures a [Keeper]. All fields except Labels, Annotations, Duration, Renewed, Lost
// and SetBack are required.
type Config struct {
	// Client reads and writes the Lease.
	Client coordinationv1client.LeasesGetter
	// Namespace is the namespace of the Lease.
	Namespace string
	// Name is the name of the shard and of its Lease. It must be unique in the namespace.
	Name string
	// Labels are set on the Lease by every write. Other labels of the Lease are kept.
	Labels map[string]string
	// Annotations are the initial annotations of the Lease. The first write sets them and removes
	// all others; it does not cost an additional write, and a takeover preserves them. Each renewal
	// writes all annotations, so they should be small.
	Annotations map[string]string
	// Duration is how long the shard is ready without a renewal, in whole seconds. If zero, it is
	// 15 seconds.
	Duration time.Duration
	// Renewed, if set, is called after each successful renewal. It must not block.
	Renewed func()
	// Lost, if set, is called each time a read shows that another client holds or has released a
	// Lease that this process has held. It is not called for a deleted Lease, which the next
	// renewal recreates. It must not block.
	Lost func()
	// SetBack, if set, is called each time a read shows an earlier version of the Lease than this
	// process has stored, as after a restore of etcd from a backup, before the Lease is renewed. It
	// must not block.
	SetBack func()
}

// completed returns the config with defaults applied and with copies of its maps.
func (c Config) completed() Config {
	c.Duration = DefaultDuration(c.Duration)
	if c.Renewed == nil {
		c.Renewed = func() {}
	}
	if c.Lost == nil {
		c.Lost = func() {}
	}
	if c.SetBack == nil {
		c.SetBack = func() {}
	}
	c.Labels, c.Annotations = maps.Clone(c.Labels), maps.Clone(c.Annotations)
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	return c
}

// RenewPeriod returns the time between two renewals of a Lease with the given duration.
func RenewPeriod(duration time.Duration) time.Duration { return duration / renewals }

// RetryPeriod returns the delay before a failed write of a Lease with the given duration is
// retried.
func RetryPeriod(duration time.Duration) time.Duration { return RenewPeriod(duration) / retries }

// DefaultDuration returns d, or the default duration of 15 seconds if d is zero.
func DefaultDuration(d time.Duration) time.Duration {
	if d == 0 {
		return defaultDuration
	}
	return d
}
