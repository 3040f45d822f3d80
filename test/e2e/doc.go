// Package e2e tests the built programs as processes against a real API server.
//
// A test makes an environment, starts the watchers and processors that it needs, does to Nodes what
// users, kubelets and controllers do, and asserts the state of the cluster:
//
//	e := newEnv(t)
//	e.watcher()
//	e.processor()
//	node := e.name("node")
//	e.create(node, map[string]string{"rack": "r7"})
//
// The API server is the one of package controlplane. Each test has one for itself while it runs, since
// the programs see all Nodes: those of one test would restore the Nodes of another. There are as many
// of them as tests run in parallel.
//
// With E2E_KUBECONFIG, the absolute path of a kubeconfig with admin rights, the tests run one after the
// other against that cluster, a minikube for instance. No nodekeeper may be installed there. The tests
// touch Nodes of their own only: those have no machine, are cordoned, have names that begin with e2e-, and
// are deleted with the namespaces of the test when it is over. The programs see the other Nodes too and keep
// records of them in the namespaces of the test, so a test looks at what belongs to its own nodes. A cluster
// may have controllers, which write the status and taints of Nodes and a ConfigMap into each namespace, or none.
//
// Waiting for something means waiting for a state of the cluster or a line in a program's log that must
// come, and was not there before. A queue is also empty before a watcher has stored anything, and a Node
// has its labels and a marker before its restore if a webhook put them there: see env.applied, env.ended
// and env.restored. That a queue stays empty is known when the watchers have ended, see env.settle. A few
// tests sleep to show that something does not happen for that long.
package e2e
