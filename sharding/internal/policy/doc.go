// Package policy lets the API server assign objects itself: for each ring it installs the mutating
// admission policies sharding-assign-<ring> and sharding-stick-<ring>, each with a binding. They
// read the table from the status of the ring, so they need neither the sharder nor a webhook, and
// do not change when shards join or leave.
//
// The policies never reject a request: their failure policy is Ignore, their expressions guard
// every access, and they set only valid label values.
//
// [Builder] is pure.
package policy
