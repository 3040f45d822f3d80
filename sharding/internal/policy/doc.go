// Package policy makes the API server assign objects itself: for each ring it installs the mutating
// admission policies sharding-assign-<ring> and sharding-stick-<ring> with a binding each. They take the
// table from the status of the ring, so they need neither the sharder nor a webhook, and are not changed
// when a shard comes or goes.
//
// The policies never reject a request: their failure policy is Ignore, their expressions guard every
// access, and what they set is a valid label value.
//
// [Builder] is pure.
package policy
