// Package rewind detects that the cluster was rewound: its etcd was restored from an older backup,
// so that events that a process has observed since the backup, a lost future, never happened.
//
// There is no other signal. An API server accepts a watch from a resourceVersion that lies in the
// future, and is silent until that is reached
// (https://github.com/kubernetes/kubernetes/issues/107457). The informer continues without an
// error, with a cache of objects that do not exist.
//
// # Detection
//
// When a watch was interrupted and before it resumes, a [Detector] reads the current
// resourceVersion of the watched objects. If that is lower than where the watch left off, the
// cluster was rewound: the process must exit and restart ([Detector.Run]), because it knows nothing
// of the time since the backup. Only resourceVersions of one kind of object are compared, because
// other kinds may be in another etcd. While no watch is interrupted, there are no requests.
//
// # Confirmation
//
// A restored etcd may have been written to for so long that its resourceVersion is higher than the
// lost future's. So everything that a process observed before an interruption is unconfirmed
// afterwards, and needs a live read before anything is written because of it
// ([Detector.Unconfirmed]). Only work that was pending then costs such a read.
package rewind
