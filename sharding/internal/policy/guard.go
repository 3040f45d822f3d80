package policy

import (
	"strings"

	"nodekeeper.dev/sharding/api/v1alpha1"
	sharderring "nodekeeper.dev/sharding/internal/ring"
)

// isMeddling returns an expression that is true for an update of an object of the ring in which a
// client other than the sharder, and the shard that releases the object, changes the sharding
// metadata, or in which the sharder changes anything else. Validating policies see a request after
// all mutating policies and webhooks, so labels that sharding-stick has restored are no change.
func (c constants) isMeddling(e expressions, b *Builder) string {
	return c.isOursIn("oldObject") + " && (" + b.isSharder() + " ? " + b.isOther() + " : " + e.isChanged() + " && !(" + c.mayChange(e, b.ByWebhook) + "))"
}

// isSharder returns an expression that is true for a request by the sharder. A service account is
// that of the sharder alone. Other users, such as an administrator who runs the sharder, send other
// requests, too, with other field managers.
func (b *Builder) isSharder() string {
	var accounts, users []string
	for _, user := range b.Sharders {
		if strings.HasPrefix(user, accountPrefix) {
			accounts = append(accounts, user)
		} else {
			users = append(users, user)
		}
	}
	const is = "request.userInfo.username in "
	return "(" + is + list(accounts) + " || " + is + list(users) +
		" && request.options.?fieldManager.orValue('') == " + quote(sharderring.FieldManager) + ")"
}

// isChanged returns an expression that is true if the sharding metadata of the ring differs after
// an update. A client that replaces an object without its annotations removes one of the sharder,
// which only makes the next shard wait less for its caches, so that is no change.
func (e expressions) isChanged() string {
	differs := func(label string) string {
		at := "object.metadata.?labels[?" + quote(label) + "]"
		return at + " != oldObject" + strings.TrimPrefix(at, "object")
	}
	return "(" + differs(e.shard) + " || " + differs(e.drain) + " || " + e.childrenDiffer() + ")"
}

// childrenDiffer returns an expression that is true if an update sets the annotation children.
func (e expressions) childrenDiffer() string {
	children := "object.metadata.?annotations[?" + quote(e.children) + "]"
	return children + ".hasValue() && " + children + " != oldObject" + strings.TrimPrefix(children, "object")
}

// mayChange returns an expression that is true for a change of labels by another client than the
// sharder that is allowed: the policy sharding-stick assigns an object that has no labels in the
// next update by any client, and a shard releases an object in a drain. The object is then parked,
// or that policy or the shard itself has assigned it to the next shard, or, if the policy was
// skipped, without labels. While no webhook answers, labels that a client leaves out are not
// restored: any client may remove both labels then, and the sharder assigns the object again.
func (c constants) mayChange(e expressions, byWebhook bool) string {
	shard, drain := "object.metadata.?labels[?"+quote(e.shard)+"].orValue('')", "object.metadata.?labels[?"+quote(e.drain)+"].orValue('')"
	dropped := shard + " == '' && " + drain + " == ''"
	assigned := e.former() + " == '' && " + before(e.drain) + " == '' && " + drain + " == ''"
	released := c.isAccountIn() + " && " + e.former() + " == " + callerPod + " && " + callerPod + " != '' && " + before(e.drain) + " != ''" +
		" && (" + shard + " == " + before(e.drain) + " && " + drain + " == '' || " + shard + " == '' && " + drain + " == " + before(e.drain) + " || " + dropped + ")"
	if byWebhook {
		assigned += " || " + dropped
	}
	return "!(" + e.childrenDiffer() + ") && (" + assigned + " || " + released + ")"
}

// isAccountIn is isAccount for use in a larger expression.
func (c constants) isAccountIn() string { return "(" + c.isAccount() + ")" }

// isOther returns an expression that is true if an update changes anything but the sharding
// metadata of rings and what the API server itself changes. It does not apply to objects in the
// namespace of the sharder, which has objects of its own there.
func (b *Builder) isOther() string {
	const unguarded = "['labels', 'annotations', 'managedFields', 'resourceVersion', 'generation']"
	same := func(at, except string) string {
		is, was := "object"+at, "oldObject"+at
		return is + ".all(k, " + except + " || k in " + was + " && " + is + "[k] == " + was + "[k]) && " +
			was + ".all(k, " + except + " || k in " + is + ")"
	}
	var labels, annotations []string
	for _, prefix := range []v1alpha1.Prefix{b.Prefix, v1alpha1.DefaultPrefix, v1alpha1.TimeberttPrefix} { // those of other rings, too
		labels = append(labels, startsWith(prefix.ShardLabel("")), startsWith(prefix.DrainLabel("")))
		annotations = append(annotations, startsWith(prefix.ChildrenAnnotation("")))
	}
	return "object.metadata.?namespace.orValue('') != " + quote(b.Namespace) + " && !(" +
		same("", "k == 'metadata'") + " && " + same(".metadata", "k in "+unguarded) + " && " +
		same(".metadata.?labels.orValue({})", strings.Join(labels, " || ")) + " && " +
		same(".metadata.?annotations.orValue({})", strings.Join(annotations, " || ")) + ")"
}

// startsWith returns an expression that is true if the key k begins with a prefix.
func startsWith(prefix string) string { return "k.startsWith(" + quote(prefix) + ")" }

// sharderMessage is the message about a request of the sharder that changes something else.
const sharderMessage = "the account of the sharder may change only the labels and annotations of rings, and this request changes something else: " +
	"another program uses the account, or a webhook or policy changes the requests of the sharder"

// guardMessage returns the message about another request that changes sharding metadata.
func (e expressions) guardMessage(ring string) string {
	return "only the sharder, and a shard that releases the object, may change the labels " + e.shard + " and " + e.drain +
		" and the annotation " + e.children + ": leave them out of your request, or as they are. To change them yourself, set spec.fence of ring " + ring + " to Audit first"
}
