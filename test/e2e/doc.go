// Package e2e tests the built programs as processes against a real API server.
//
// A test creates an environment, starts the watchers and processors that it needs, changes Nodes as
// users, kubelets and controllers do, and asserts the state of the cluster:
//
//	e := newEnv(t)
//	e.watcher()
//	e.processor()
//	node := e.name("node")
//	e.create(node, map[string]string{"rack": "r7"})
//
// The API server comes from package controlplane. The programs see all Nodes, so those of one test
// would restore the Nodes of another. Each test therefore has an API server for its exclusive use
// while it runs, and there are as many API servers as parallel tests.
//
// With E2E_KUBECONFIG, the absolute path of a kubeconfig with admin rights, the tests run
// sequentially against that cluster, for example minikube. nodekeeper must not be installed there.
// The tests only change Nodes of their own. These have no machine, are cordoned, have names that
// begin with e2e-, and are deleted with the namespaces of the test at its end. The programs also
// see the other Nodes and store records of them in the namespaces of the test, so a test only
// checks objects that belong to its own nodes. The cluster may have no controllers, or it may have
// controllers, which write the status and taints of Nodes and a ConfigMap into each namespace.
//
// A test waits for a state of the cluster or a log line that must appear, and that did not exist
// before. Two states prove too little: the queue is also empty before a watcher has stored
// anything, and a Node has its labels and a marker before its restore if a webhook added them. See
// env.applied, env.ended and env.restored. Once the watchers have ended, an empty queue stays
// empty; see env.settle. A few tests sleep to show that something does not happen for that long.
package e2e
