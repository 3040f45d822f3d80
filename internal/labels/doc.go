// Package labels knows how the labels of a Node are kept in a ConfigMap, and
// which of them a restore writes. It is pure: no I/O, no clock, no logging.
//
// # Label keys as ConfigMap keys
//
// A ConfigMap key may not hold a slash and has at most 253 characters; a label
// key may have 317 (a prefix of 253, a slash, a name of 63). [Encode] and
// [Decode] map between them. Ordinary keys stay readable:
//
//	rack                      -> rack
//	example.com/team          -> example.com---SLASH---team
//
// Every other key takes a form that begins with three dashes, which no label
// key and so no ordinary form does. A key that holds the token itself, or that
// is a word which nodekeeper uses in the same ConfigMap, is escaped; in the
// escaped form an underscore stands for itself as _U and for the slash as _S:
//
//	type                      -> ---ESCAPED---type
//	a---SLASH---b             -> ---ESCAPED---a---SLASH---b
//	example.com/x---SLASH---y -> ---ESCAPED---example.com_Sx---SLASH---y
//
// A key that would come out longer than 253 characters is named by its SHA-256,
// and the key itself goes before the value:
//
//	<prefix of 253>/name: v   -> ---LONG---<64 hex digits>: <prefix of 253>/name=v
//
// The last form is unavoidable: there are about 2^1700 label keys
// and only 2^1524 ConfigMap keys, so no code can fit every key into a key.
package labels
