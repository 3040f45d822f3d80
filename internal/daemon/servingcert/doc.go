// Package servingcert keeps the serving certificate of an admission webhook in one Secret, serves
// it from memory, and makes the API server trust it. No volume is mounted, and cert-manager is not
// needed.
//
// With [Config].Rotate, the package guarantees:
//   - It fills an empty Secret with a certificate authority (ca.crt, ca.key) and a serving
//     certificate signed by it (tls.crt, tls.key), and copies ca.crt into the caBundle of every webhook
//     of one MutatingWebhookConfiguration, or of each that [Config.Selects] selects.
//   - It replaces the certificate and the authority long before they expire, and repairs the Secret
//     and caBundle as soon as they are deleted or damaged.
//   - Any number of replicas may do this at the same time. The precondition of every write is the
//     resourceVersion that was read, so one replica wins, and all serve the certificate that it wrote.
//   - A replica serves a new certificate without a restart, as soon as its watch of the Secret shows
//     it. Until then, and while the Secret has no usable certificate, it serves the previous one.
//   - The API server trusts both certificates meanwhile. The same authority signs the successor of a
//     certificate. When the authority is replaced, ca.crt and caBundle hold the new one and its
//     predecessors. The new one signs some seconds later, and the predecessors are dropped after some
//     minutes. If the keys were leaked, delete the data of the Secret: the old authority is no longer
//     trusted after these minutes.
//
// Without Rotate the package writes nothing and needs no rights to the webhook configuration. The
// Secret then belongs to a Certificate of cert-manager, whose cainjector writes caBundle.
//
// The package creates neither object, so that roles can name both. Rotate needs these rights.
// Without it, the package only reads the Secret:
//
//	kind: Role # in the namespace of the Secret
//	rules:
//	  - apiGroups: [""]
//	    resources: [secrets]
//	    resourceNames: [webhook-certificate]
//	    verbs: [get, list, watch, patch] # without Rotate: get, list, watch
//	---
//	kind: ClusterRole
//	rules:
//	  - apiGroups: [admissionregistration.k8s.io]
//	    resources: [mutatingwebhookconfigurations]
//	    resourceNames: [nodekeeper]
//	    verbs: [get, list, watch, patch]
//
// RBAC cannot limit the right to patch the webhook configuration to caBundle. A holder of that
// right can make the API server send every request to a server of their choice, and so control the
// cluster. An admission policy must limit the account.
//
// A Secret of type kubernetes.io/tls must have the keys tls.crt and tls.key, which may be empty.
// One of type Opaque needs no data.
package servingcert
