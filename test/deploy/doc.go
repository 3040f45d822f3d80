// Package deploy contains only tests. They render the manifests under deploy with kubectl, and
// check them with a real API server:
//   - The API server accepts every object without a warning.
//   - The pods are admitted in their namespace, which enforces the restricted Pod Security Standard.
//   - The built programs work with the permissions of their service accounts, and use all of these,
//     with each component. The tests compare the audit log of the API server with the rules of the
//     roles.
//   - The overlays and components render as documented, with flags that the programs know, and the
//     overlays in docs/how-to and docs/reference work.
//   - The API server calls a webhook that runs with its manifests, and a processor opens the gate of
//     the startup taint under the policies. The objects of cert-manager are only rendered, as
//     cert-manager does not run.
//   - The admission policies reject exactly the intended requests, for the real accounts. If their
//     evaluation fails, a restore waits.
//
// No pods run, since there is no kubelet and no controller.
package deploy
