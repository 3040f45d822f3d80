package robustness

import "nodekeeper.dev/internal/labels"

// scenario determines which processes are exempt from faults, and so the promises that hold.
type scenario struct {
	name string
	// hasAnchor: the first watcher is exempt from faults. So changes are lost only when all watches
	// end at the same time, because a server stops.
	hasAnchor bool
	// isBlind: all watchers may be down at the same time. Changes that they did not see are lost
	// unless they were recorded.
	isBlind bool
	// isProtected: the processors keep a Node by a finalizer until its labels are saved, and users
	// delete only nodes that have it. So nothing is lost, whichever processes are down, except an edit
	// during the release of a Node.
	isProtected bool
	// hasWebhook: a webhook restores the labels in the request that creates a Node, if it is up and
	// its cache is current. The API server calls it twice.
	hasWebhook bool
}

// scenarios are the scenarios that a seed selects from.
var scenarios = []scenario{
	{name: "anchored", hasAnchor: true},
	{name: "blind", isBlind: true},
	{name: "protected", isProtected: true},
}

// scenarioOf returns the scenario of a seed. Three consecutive seeds have every scenario, one or
// two of them with the webhook; six have all combinations.
func scenarioOf(seed uint64) scenario {
	s := scenarios[seed%uint64(len(scenarios))]
	if s.hasWebhook = seed%2 == 1; s.hasWebhook {
		s.name += ", webhook"
	}
	return s
}

// processorArgs returns the flags of the processors.
func (s scenario) processorArgs() []string {
	args := []string{"--save-delay=300ms"} // some saves are batched, but many happen during faults
	if s.isProtected {
		args = append(args, "--protect=finalizer")
	}
	return args
}

// defaultPolicy returns the policy of a processor without flags.
func defaultPolicy() labels.Policy {
	live, err := labels.ParsePatterns(labels.DefaultLive)
	if err != nil {
		panic(err)
	}
	return labels.Policy{Mode: labels.Replace, Live: live}
}
