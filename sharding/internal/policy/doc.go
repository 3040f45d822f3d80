// Package policy lets the API server assign objects itself: for each ring it installs the mutating
// admission policies sharding-assign-<ring> and sharding-stick-<ring>, each with a binding. They
// read the table from a ConfigMap in the namespace of the sharder, so they need neither the sharder
// nor a webhook, and do not change when shards join or leave:
//
//	metadata: {namespace: sharder-system, name: sharding-table-website}
//	data:
//	  generation: "7"
//	  shards: web-0,web-1,web-2 # the live shards
//	  rows: 0,2,1,…;1,1,0,…;…   # 32 times the indexes of the shards of 32 slots, without the silent
//	                            # ones if there are others
//
// The ConfigMap is a copy of the table in the status of the ring. The parameter is not the ring
// itself, because a restarted API server can need half a minute to find a custom resource that is
// a parameter, and applies no policy of the ring until then.
//
// These policies never reject a request: their failure policy is Ignore, their expressions guard
// every access, and they set only valid label values.
//
// For a ring with a fence, the package also installs the validating policy sharding-fence-<ring>,
// whose match condition is true only for requests that it records or refuses. It needs no
// parameter.
//
// [Builder] is pure.
package policy
