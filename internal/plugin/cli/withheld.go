package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview/identity"
	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/preserve"
	"nodekeeper.dev/internal/record"
)

// shownMachine is the machine identity of a Node.
type shownMachine struct {
	ProviderID string `json:"providerID,omitempty"`
	SystemUUID string `json:"systemUUID,omitempty"`
}

// shownWithheld has labels of a machine that were not restored, and the reason.
type shownWithheld struct {
	Labels  map[string]string `json:"labels"`
	Machine *shownMachine     `json:"machine,omitempty"`
	// Waiting reports whether they are restored as soon as the Node proves to be their machine.
	Waiting bool   `json:"waiting,omitempty"`
	Reason  string `json:"reason"`
}

func machineOf(r *record.Record) *shownMachine {
	if r.Identity.UID == "" {
		return nil
	}
	return &shownMachine{ProviderID: r.Identity.ProviderID, SystemUUID: r.Identity.SystemUUID}
}

// withheldOf returns the withheld labels of a node's record.
func withheldOf(n *inspect.Node, policy labels.Policy) []shownWithheld {
	var shown []shownWithheld
	for _, w := range byReason(preserve.ByMode(n.Saved.Record.Withheld, policy)) {
		s := shownWithheld{Labels: w.Labels, Reason: whyWithheld(w, n, policy), Waiting: n.Live != nil && w.State.WaitsFor(n.Live.UID)}
		if !w.Identity.IsZero() {
			s.Machine = &shownMachine{ProviderID: w.Identity.ProviderID, SystemUUID: w.Identity.SystemUUID}
		}
		shown = append(shown, s)
	}
	return shown
}

// byReason divides sets whose labels were refused for different reasons.
func byReason(sets []record.Withheld) (all []record.Withheld) {
	for _, w := range sets {
		if w.State.IsRefused() {
			all = append(all, w.ByRefusal()...)
		} else {
			all = append(all, w)
		}
	}
	return all
}

// whyWithheld returns why labels are withheld, and when they are restored.
func whyWithheld(w record.Withheld, n *inspect.Node, policy labels.Policy) string {
	live, mode := n.Live, preserve.ModeOf(w, policy)
	switch {
	case w.State.IsRestored():
		return "restored, and not saved yet"
	case live != nil && w.State.IsRefusedFor(live.UID):
		return whyRefused(w)
	case mode == labels.Drop:
		return "--restricted-labels=drop: removed when the node returns next"
	case mode == labels.Keep:
		return "restored when the node returns next"
	case w.Identity.IsZero():
		return "it is unknown which machine they were saved from: set them with kubectl label if this node may have them"
	case live == nil || !live.IsWhole:
		return "restored when their machine returns: " + w.Identity.String()
	}
	switch live.Compare(w.Identity) {
	case identity.Same:
		return "this node is their machine; the processor has not restored them yet"
	case identity.Other:
		return fmt.Sprintf("saved from another machine (%s) than this node (%s); restored when that returns", w.Identity, live.Identity)
	case identity.Undecided:
	}
	reports := "reports neither providerID nor systemUUID"
	if !live.Identity.IsZero() {
		reports = "reports only " + live.Identity.String()
	}
	return fmt.Sprintf("the node %s; restored when it reports that it is the machine with %s", reports, w.Identity)
}

// whyRefused returns why labels are withheld that were refused for one reason. Records of releases
// that kept no reasons have none.
func whyRefused(w record.Withheld) string {
	reason := "see the event LabelRefused of the node"
	for key := range w.Labels {
		if kept := w.Refusals[key]; kept != "" {
			reason = kept
		}
	}
	return "refused by the API server: " + reason + "; tried again when the node returns next"
}

func writeWithheld(w io.Writer, withheld []shownWithheld) {
	line := output.Lines(w)
	for _, held := range withheld {
		line("Withheld", "%s: %s", amountOf(held.Labels), held.Reason)
		for _, key := range slices.Sorted(maps.Keys(held.Labels)) {
			_, _ = fmt.Fprintf(w, "  %s\n", entry(key, held.Labels[key]))
		}
	}
}

// entry returns a label, annotation or taint in the form of kubectl.
func entry(key, value string) string {
	if taint, effect, ok := labels.AsTaint(key); ok {
		return "taint " + (&corev1.Taint{Key: taint, Value: value, Effect: corev1.TaintEffect(effect)}).ToString()
	}
	return labels.Described(key) + "=" + value
}

// amountOf counts labels, annotations and taints.
func amountOf(all map[string]string) string {
	counts := map[string]int{}
	for key := range all {
		switch {
		case labels.IsLabel(key):
			counts["label"]++
		case labels.IsTaint(key):
			counts["taint"]++
		default:
			counts["annotation"]++
		}
	}
	var texts []string
	for _, kind := range []string{"label", "annotation", "taint"} {
		if counts[kind] > 0 {
			texts = append(texts, amount.Of(counts[kind], kind))
		}
	}
	return strings.Join(texts, ", ")
}
