// Package history finds out that the history of the cluster went back: its etcd was restored from an older backup,
// so that what a process remembers of the time since, a lost future, never happened.
//
// Nobody else tells. An API server takes a watch that goes on from a resourceVersion which is yet to come, and is silent
// until that is reached (https://github.com/kubernetes/kubernetes/issues/107457). The informer goes on without an error,
// with a cache of what is not there.
//
// A [History] looks when a watch was interrupted, and before it goes on: it reads the current resourceVersion of the
// watched objects. If that is lower than where the watch left off, the process is to end and to begin anew
// ([History.Run]), since nothing is known of the time since the backup. Until that is known, and for a while after, what the
// process remembers is in doubt ([History.InDoubt]) and is to be confirmed by a fresh read before it is written.
//
// Only resourceVersions of one kind of object are compared: other kinds may be in another etcd. While no watch is
// interrupted there are no requests.
package history
