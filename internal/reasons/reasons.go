// Package reasons declares the events that nodekeeper records, by their reasons:
//
//	reason: LabelsRestoreFailed
//	type: Warning
//	regarding: {kind: Node, name: node-1}
//
// Users select events by reason and alert on them, so a reason never changes its meaning. A test
// checks that the programs record no events with other reasons, and generates the table of
// docs/reference/events.md.
package reasons

import "slices"

// The reasons. [All] returns their meanings.
const (
	LabelsSaved              = "LabelsSaved"
	LabelsRestored           = "LabelsRestored"
	MachineLabelsWithheld    = "MachineLabelsWithheld"
	RestrictedLabelsWaiting  = "RestrictedLabelsWaiting"
	RestrictedLabelsWithheld = "RestrictedLabelsWithheld"
	RestrictedLabelsDropped  = "RestrictedLabelsDropped"
	LabelsTooLarge           = "LabelsTooLarge"
	LabelsNotKept            = "LabelsNotKept"
	GateClosed               = "GateClosed"
	LabelsRestoreFailed      = "LabelsRestoreFailed"
	LabelRefused             = "LabelRefused"
	DeletionWaits            = "DeletionWaits"
	RecordUnreadable         = "RecordUnreadable"
	RecordAhead              = "RecordAhead"
	RecordUnfollowed         = "RecordUnfollowed"
	TransactionMalformed     = "TransactionMalformed"
)

// Event describes all events with one reason.
type Event struct {
	Reason string
	// Type is Normal or Warning.
	Type string
	// Object is the object of the events.
	Object string
	// Programs are the programs that record them.
	Programs []string
	// Meaning describes the event and what to do about it, for users, in Markdown.
	Meaning string
}

// The values of an [Event].
const (
	normal  = "Normal"
	warning = "Warning"

	node        = "Node"
	record      = "record"
	transaction = "transaction"

	watcher   = "watcher"
	processor = "processor"
)

// All returns every reason, Normal events first.
func All() []Event { return slices.Concat(normals(), warnings(), storedWarnings()) }

func normals() []Event {
	return []Event{
		{LabelsSaved, normal, node, []string{processor}, "This number of labels was saved as this version of the record."},
		{LabelsRestored, normal, node, []string{processor}, "The node returned, and this number of labels of this version of the record was restored."},
		{
			RestrictedLabelsWaiting, normal, node,
			[]string{processor},
			"These labels of a machine wait until the node reports which machine it is.",
		},
		{
			MachineLabelsWithheld, normal, node,
			[]string{processor},
			"These labels of `--same-machine-labels` were not restored: the node is not the machine that they were saved from. They are restored when that machine returns.",
		},
	}
}

func warnings() []Event {
	return []Event{
		{
			RestrictedLabelsWithheld, warning, node,
			[]string{processor},
			"These labels were not restored: they are restricted, and the node is not the machine that they were saved from, or that machine is unknown. " +
				"If this node may have them, set them with `kubectl label`. If it is unexpected that another machine has this name, investigate.",
		},
		{
			RestrictedLabelsDropped, warning, node,
			[]string{processor},
			"With `--restricted-labels=drop`: these labels were not restored, and were dropped from the record. With the other modes: a record has room for 32 KiB " +
				"of withheld labels, and these did not fit.",
		},
		{
			LabelsTooLarge, warning, node,
			[]string{watcher, processor},
			"The labels do not fit into a ConfigMap (1 MiB of values, about 1.5 MiB in total) and are not saved. Remove unneeded labels.",
		},
		{LabelsNotKept, warning, node, []string{watcher}, "The node is named `kube-root-ca.crt`, which Kubernetes reserves for a ConfigMap in every namespace. Rename it."},
		{
			GateClosed, warning, node,
			[]string{watcher},
			"The Node has had the startup taint for more than a minute, because no processor has restored its labels. Check whether processors run.",
		},
		{
			LabelsRestoreFailed, warning, node,
			[]string{processor},
			"The API server or an admission plugin rejected the whole restore, not just one label, for the given reason. A processor retries it with backoff (up to 30 s).",
		},
		{
			LabelRefused, warning, node,
			[]string{processor},
			"The API server or an admission plugin refuses this label, annotation or taint on this node, for the given reason. Everything else is restored, and this is " +
				"withheld and tried again when the node returns next. If the node may have it by now, set it with `kubectl label`, `annotate` or `taint`.",
		},
		{
			DeletionWaits, warning, node,
			[]string{watcher, processor},
			"The node has nodekeeper's finalizer, and is not deleted until its labels are saved. From a processor: they cannot be saved, for the given reason. " +
				"It retries with backoff (up to 30 s). From a watcher: the node has waited for more than a minute. Check whether a processor runs with " +
				"`--protect=finalizer`.",
		},
	}
}

// storedWarnings are the Warning events about records and transactions.
func storedWarnings() []Event {
	return []Event{
		{
			RecordUnreadable, warning, record,
			[]string{processor},
			"The record is not in a form that nodekeeper writes, or a ConfigMap of another program has the name of the node. The node waits. Correct the record, " +
				"delete it, or do what the event asks for: a processor notices the change at once. See [Move from kube-state-rs](../how-to/move-from-kube-state-rs.md).",
		},
		{
			RecordAhead, warning, node,
			[]string{processor},
			"The record had a revision that no Node had reached yet: the datastore of the cluster was replaced, or a user mistyped the revision. " +
				"The record has a current revision now, and edits of the node are saved again.",
		},
		{
			RecordUnfollowed, warning, node,
			[]string{watcher},
			"For more than a minute, the record has followed another Node of this name, and no transaction is left: the record was replaced, for example by one from a " +
				"backup. The node keeps its labels. Save them with `kubectl nodekeeper save NODE`, or restore those of the record with `kubectl nodekeeper restore NODE`.",
		},
		{
			TransactionMalformed, warning, transaction,
			[]string{processor},
			"The ConfigMap was meant as a transaction but is unreadable, for the given reason. It is kept in quarantine, and blocks no node unless the event " +
				"asks you to delete it by hand. Delete it once you know its origin.",
		},
	}
}
