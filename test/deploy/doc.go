// Package deploy has no code of its own. Its tests render the manifests under deploy with kubectl, and check them against a
// real API server:
//   - the API server takes every object, without a warning;
//   - the pods are admitted in their namespace, which enforces the restricted Pod Security Standard;
//   - the built programs work with the rights of their service accounts, and use each of these rights, with each component: the
//     audit log of the API server is compared with the rules of the roles;
//   - the overlays and components render what they say, with flags that the programs know, and those that docs/how-to and docs/reference show work;
//   - the API server asks a webhook that runs with its manifests, and a processor opens the gate of the startup taint under the policies;
//     there is no cert-manager: its objects are only rendered;
//   - the admission policies refuse what they are there for, to the real accounts, and nothing else; where their evaluation fails, a
//     restore waits.
//
// No pod runs: there is no kubelet and no controller.
package deploy
