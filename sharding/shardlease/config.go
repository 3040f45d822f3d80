package shardlease

import (
	"maps"
	"time"

	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

const (
	// defaultDuration makes a shard renew every five seconds: that is all that a quiet one writes.
	defaultDuration = 15 * time.Second
	// releaseTimeout bounds the release of the Lease at shutdown. A Lease that is not released
	// expires.
	releaseTimeout = 2 * time.Second
	// renewals is how often a Lease is renewed in one duration. Failed writes are retried, and
	// states recomputed, as often in one such period as retries says.
	renewals, retries = 3, 5
)

// Config is which Lease a [Keeper] keeps. All fields are required but Labels, Annotations, Duration,
// Renewed and Lost.
type Config struct {
	// Client reads and writes the Lease.
	Client coordinationv1client.LeasesGetter
	// Namespace is where the Lease is.
	Namespace string
	// Name is the name of the shard and of its Lease. It must be unique in the namespace.
	Name string
	// Labels are what the Lease must have. Others that it has stay.
	Labels map[string]string
	// Annotations are what the Lease has from its first write on, whoever wrote it before, and nothing
	// else: it costs no write of its own, and whoever takes the Lease over keeps them. Each renewal
	// writes all of them, so they should be small.
	Annotations map[string]string
	// Duration is how long the shard is ready without a renewal, in whole seconds. Zero: 15 seconds.
	Duration time.Duration
	// Renewed is called after each renewal that is stored. It must not block.
	Renewed func()
	// Lost is called when a Lease that this process has held turns out to be somebody else's, or nobody's,
	// each time that it is read as such. It must not block. It is not called for a Lease that was deleted:
	// the next renewal creates it.
	Lost func()
}

// completed returns the config with its defaults, and with maps of its own.
func (c Config) completed() Config {
	c.Duration = DefaultDuration(c.Duration)
	if c.Renewed == nil {
		c.Renewed = func() {}
	}
	if c.Lost == nil {
		c.Lost = func() {}
	}
	c.Labels, c.Annotations = maps.Clone(c.Labels), maps.Clone(c.Annotations)
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	return c
}

// RenewPeriod returns the time between two renewals of a Lease of a duration.
func RenewPeriod(duration time.Duration) time.Duration { return duration / renewals }

// RetryPeriod returns the time after which a write of a Lease of a duration that failed is retried.
func RetryPeriod(duration time.Duration) time.Duration { return RenewPeriod(duration) / retries }

// DefaultDuration returns a duration, or the default one for zero.
func DefaultDuration(d time.Duration) time.Duration {
	if d == 0 {
		return defaultDuration
	}
	return d
}
