// Package reasons declares the events that nodekeeper records, by their reasons:
//
//	reason: LabelsRestoreFailed
//	type: Warning
//	regarding: {kind: Node, name: node-1}
//
// Users select events by reason and alert on them, so a reason never changes its meaning. A test
// checks that the programs record no event of another reason, and writes the table of
// docs/reference/events.md.
package reasons

// The reasons. [All] says what each means.
const (
	LabelsSaved              = "LabelsSaved"
	LabelsRestored           = "LabelsRestored"
	RestrictedLabelsWaiting  = "RestrictedLabelsWaiting"
	RestrictedLabelsWithheld = "RestrictedLabelsWithheld"
	RestrictedLabelsDropped  = "RestrictedLabelsDropped"
	LabelsTooLarge           = "LabelsTooLarge"
	LabelsNotKept            = "LabelsNotKept"
	GateClosed               = "GateClosed"
	LabelsRestoreFailed      = "LabelsRestoreFailed"
	DeletionWaits            = "DeletionWaits"
	RecordUnreadable         = "RecordUnreadable"
	TransactionMalformed     = "TransactionMalformed"
)

// Event is what all events of a reason have in common.
type Event struct {
	Reason string
	// Type is Normal or Warning.
	Type string
	// Object is what the events are about.
	Object string
	// Programs are those that record them.
	Programs []string
	// Meaning tells people what has happened, and what to do about it, in Markdown.
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

// All returns every reason, those of Normal events first.
func All() []Event { return append(normals(), warnings()...) }

func normals() []Event {
	return []Event{
		{LabelsSaved, normal, node, []string{processor}, "So many labels were saved as this version of the record."},
		{LabelsRestored, normal, node, []string{processor}, "The node returned, and so many labels of this version of the record were put onto it."},
		{
			RestrictedLabelsWaiting, normal, node,
			[]string{processor},
			"These restricted labels wait until the node reports which machine it is.",
		},
	}
}

func warnings() []Event {
	return []Event{
		{
			RestrictedLabelsWithheld, warning, node,
			[]string{processor},
			"These restricted labels were not put back: the node is another machine than the one that they were saved from, or that one is unknown. " +
				"If this node may have them, set them with `kubectl label`. If nobody knows why another machine has this name, find out.",
		},
		{
			RestrictedLabelsDropped, warning, node,
			[]string{processor},
			"With `--restricted-labels=drop`: these labels were not put back, and are forgotten. With the other modes: a record has room for 32 KiB " +
				"of withheld labels, and these did not fit.",
		},
		{
			LabelsTooLarge, warning, node,
			[]string{watcher, processor},
			"The labels do not fit a ConfigMap (1 MiB of values, about 1.5 MiB in all) and are not kept. Remove labels that nobody needs.",
		},
		{LabelsNotKept, warning, node, []string{watcher}, "The node is named `kube-root-ca.crt`, as a ConfigMap in every namespace is. Rename it."},
		{
			GateClosed, warning, node,
			[]string{watcher},
			"The Node has had the startup taint for more than a minute, because no processor has restored its labels. See whether processors run.",
		},
		{
			LabelsRestoreFailed, warning, node,
			[]string{processor},
			"The API server or an admission plugin refused the restore, for the reason given. A processor retries it with backoff (up to 30 s).",
		},
		{
			DeletionWaits, warning, node,
			[]string{watcher, processor},
			"The node has nodekeeper's finalizer, and is not deleted before its labels are saved. By a processor: they cannot be saved, for the reason given. " +
				"It retries that with backoff (up to 30 s). By a watcher: the node has waited for more than a minute. See whether a processor runs with " +
				"`--protect=finalizer`.",
		},
		{
			RecordUnreadable, warning, record,
			[]string{processor},
			"nodekeeper cannot have written the record as it is. Its node waits. Correct the record, or delete it to start over: a processor " +
				"notices the change at once.",
		},
		{
			TransactionMalformed, warning, transaction,
			[]string{processor},
			"The ConfigMap was meant as a transaction and cannot be read, for the reason given. It is kept, quarantined, and blocks nobody. " +
				"Delete it when you know where it came from.",
		},
	}
}
