// Package controlplane runs a real etcd and kube-apiserver on free loopback ports, for tests and for the demo.
//
// What it guarantees:
//   - hack/controlplane pins the version of the API server; a missing binary is an error that explains how to get it, never
//     a skipped test.
//   - Nothing outlives its owner: [ControlPlane.Stop] waits until both servers are gone, and if the owner dies
//     without calling it (a test that timed out, Ctrl-C, SIGKILL) a guard process ends them. Servers are ended by
//     the process ids that they wrote down themselves, so any number of control planes run side by side.
//   - No cluster that the environment points to is ever used instead.
//
// There is only an API server: no scheduler, no kubelet, and no controller either. So Node objects are just objects,
// nothing is garbage-collected, and a deleted Namespace stays Terminating with all that is in it.
//
// All files are in one directory, [ControlPlane.Dir]:
//
//	kubeconfig             admin rights
//	kubeconfig-*           other users, see KubeconfigFor
//	servers.log            what both servers print
//	etcd, kube-apiserver   what was started: writes its process id, then becomes the real binary
//	etcd.pid, kube-apiserver.pid
//	etcd.d, kube-apiserver.d   data and certificates
//
// A package of tests that need an API server has this, and makes a [Namespace] for each test:
//
//	var api *controlplane.ControlPlane
//
//	func TestMain(m *testing.M) {
//		os.Exit(controlplane.Run(m, func(c *controlplane.ControlPlane) { api = c }))
//	}
//
// Where a test needs an API server for itself, since what it starts sees all Nodes, a [Pool] lends them, so that
// such tests can run in parallel.
package controlplane
