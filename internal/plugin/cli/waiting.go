package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/plugin/inspect"
)

// writeWaiting writes why transactions are not applied yet, one line per reason.
func writeWaiting(w io.Writer, waiting *inspect.Waiting, now time.Time) {
	for i, text := range waitingTexts(waiting, now) {
		name := ""
		if i == 0 {
			name = "Waiting:"
		}
		_, _ = fmt.Fprintf(w, "%-16s%s\n", name, text)
	}
}

// waitingTexts returns why transactions are not applied yet, one text per reason.
func waitingTexts(waiting *inspect.Waiting, now time.Time) []string {
	var texts []string
	for _, reason := range waiting.Reasons {
		texts = append(texts, waitingFor(reason, waiting, now))
	}
	for _, missing := range waiting.Unknown {
		texts = append(texts, "unknown are "+missing)
	}
	return texts
}

// waitingFor describes a reason.
func waitingFor(reason inspect.WaitReason, w *inspect.Waiting, now time.Time) string {
	switch reason {
	case inspect.NoProcessor:
		return "no processor is ready"
	case inspect.WarningEvent:
		return warningText(w.Warning, now)
	case inspect.UnreadableRecord:
		return "the record cannot be read: " + w.Advice
	case inspect.Locked:
		return lockText(w, now)
	case inspect.SaveDelay:
		return saveDelayText(w)
	case inspect.Overdue:
		return overdueText(w, now)
	}
	return string(reason)
}

func warningText(w *inspect.Warning, now time.Time) string {
	often := ""
	if w.Count > 1 {
		often = fmt.Sprintf("at least %d times, last ", w.Count)
	}
	return fmt.Sprintf("%s, %s%s ago: %s", w.Reason, often, output.AgeOf(w.LastSeen, now), output.Harmless(strings.Join(strings.Fields(w.Note), " ")))
}

func lockText(w *inspect.Waiting, now time.Time) string {
	since := ""
	if w.Lock.Since != nil {
		since = " for " + output.AgeOf(w.Lock.Since, now)
	}
	text := fmt.Sprintf("locked by %s%s", w.Lock.Holder, since)
	if w.Lock.IsExpired {
		text += "; the lock has expired, and the next processor takes it over"
	}
	if w.Owner != "" && w.Owner != w.Lock.Holder {
		text += "; the owner on the ring is " + w.Owner
	}
	return text
}

// saveDelayText describes the batch period.
func saveDelayText(w *inspect.Waiting) string {
	period := duration.HumanDuration(w.Period.Duration)
	text := "a save waits up to " + period + " for further changes (--save-delay"
	if w.Ended {
		text = "a save waits up to " + period + " for the node to return (nine times --save-delay"
	}
	if w.SaveDelayAssumed {
		text += ", by default"
	}
	return text + ")"
}

func overdueText(w *inspect.Waiting, now time.Time) string {
	if w.Owner == "" { // or unknown
		return "no processor has applied it yet"
	}
	text := w.Owner + " owns the node on the ring, and has not applied it yet"
	if w.Period.Duration > 0 {
		text += fmt.Sprintf(", %s after the end of --save-delay", output.AgeOf(w.Due, now))
	}
	if w.Period.Duration > 0 && w.SaveDelayAssumed {
		text += fmt.Sprintf(" (if that is %s, the default)", duration.HumanDuration(w.SaveDelay.Duration))
	}
	return text
}
