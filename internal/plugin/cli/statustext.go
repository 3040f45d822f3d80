package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/plugin/amount"
	"nodekeeper.dev/internal/plugin/inspect"
)

// write writes the text for people, with the settings of all replicas if wide is set.
func (s *status) write(w io.Writer, now time.Time, wide bool) {
	line := output.Lines(w)
	if len(s.Unwell) == 0 {
		line("Status", "well")
	} else {
		line("Status", "unwell: %s", strings.Join(s.Unwell, ", "))
	}
	if s.IsUnknown {
		return
	}
	line("Replicas", "%s", s.describeReplicas())
	writeReplicas(w, s.Replicas, now, wide)
	var states []string
	for _, state := range slices.Backward(inspect.States) {
		if n := s.Nodes[state]; n > 0 || state == inspect.Live {
			states = append(states, fmt.Sprintf("%d %s", n, state))
		}
	}
	line("Nodes", "%s", strings.Join(states, ", "))
	line("Records", "%d", s.Records)
	pending := "nothing"
	if s.Pending.Oldest != nil {
		pending = fmt.Sprintf("%s of %s, the oldest for %s (%s)", amount.Of(s.Pending.Transactions, "transaction"), amount.Of(s.Pending.Nodes, "node"),
			output.AgeOf(s.Pending.Oldest, now), s.Pending.OldestNode)
		if s.Pending.CatchingUp {
			pending += "; the processors are catching up"
		}
	}
	line("Pending", "%s", pending)
	line("Malformed", "%d", s.Malformed)
	line("Locks", "%s", s.describeLocks())
	restored := make([]string, len(s.Restored))
	for i, r := range s.Restored {
		restored[i] = fmt.Sprintf("%s %s ago", r.Node, output.AgeOf(r.At, now))
	}
	line("Last restored", "%s", output.OrNone(strings.Join(restored, ", ")))
	if len(s.Stuck) == 0 {
		line("Stuck", "nothing")
		return
	}
	line("Stuck", "%s", amount.Of(len(s.Stuck), "thing"))
	for _, one := range s.Stuck[:min(len(s.Stuck), shownStuck)] {
		_, _ = fmt.Fprintf(w, "  %s: %s\n    %s\n", one.Name, one.Reason, one.Advice)
	}
	if len(s.Stuck) > shownStuck {
		_, _ = fmt.Fprintf(w, "  … and %d more: -o yaml shows all\n", len(s.Stuck)-shownStuck)
	}
}

func (s *status) describeReplicas() string {
	ready, all := map[string]int{}, map[string]int{}
	for _, r := range s.Replicas {
		all[r.Service]++
		if r.Ready() {
			ready[r.Service]++
		}
	}
	services := slices.Clone(inspect.Services)
	if s.asksWebhooks || all[inspect.WebhookService] > 0 {
		services = append(services, inspect.WebhookService)
	}
	texts := make([]string, len(services))
	for i, service := range services {
		are := "alive"
		if service == inspect.WebhookService {
			are = "ready"
		}
		texts[i] = "no " + service
		if all[service] > 0 {
			texts[i] = fmt.Sprintf("%d of %s %s", ready[service], amount.Of(all[service], service), are)
		}
	}
	return strings.Join(texts, ", ")
}

func (s *status) describeLocks() string {
	switch {
	case len(s.Locks) == 0:
		return output.None
	case len(s.Locks) > 1:
		return fmt.Sprintf("%s, the first %s by %s", amount.Of(len(s.Locks), "node"), s.Locks[0].Node, s.Locks[0].Holder)
	}
	return s.Locks[0].Node + " by " + s.Locks[0].Holder
}
