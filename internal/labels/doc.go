// Package labels defines how the labels of a Node are stored in a ConfigMap, and which of them a
// restore writes ([Policy]). It is pure: no I/O, no clock, no logging.
//
// # Label keys as ConfigMap keys
//
// A ConfigMap key cannot contain a slash and has at most 253 characters; a label key may have 317
// (a prefix of 253, a slash, a name of 63). [Encode] and [Decode] map between them. Ordinary keys
// stay readable:
//
//	rack                      -> rack
//	example.com/team          -> example.com---SLASH---team
//
// Every other key has a form that begins with three dashes, with which neither label keys nor
// ordinary forms begin. A key that contains the token itself, or that nodekeeper uses in the same
// ConfigMap, is escaped. In the escaped form, _U stands for an underscore, _S for the slash and _C
// for a colon:
//
//	type                      -> ---ESCAPED---type
//	a---SLASH---b             -> ---ESCAPED---a---SLASH---b
//	example.com/x---SLASH---y -> ---ESCAPED---example.com_Sx---SLASH---y
//
// A key whose form would be longer than 253 characters is replaced by its SHA-256, and the key
// itself is stored before the value:
//
//	<prefix of 253>/name: v   -> ---LONG---<64 hex digits>: <prefix of 253>/name=v
//
// The last form is unavoidable: there are about 2^1700 label keys and only 2^1524 ConfigMap keys,
// so no encoding can fit every key into a key.
package labels
