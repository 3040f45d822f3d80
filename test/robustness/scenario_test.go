package robustness

import "nodekeeper.dev/internal/labels"

// scenario says who is spared, and so what the ghost may demand.
type scenario struct {
	name string
	// hasAnchor: nothing is done to the first watcher. So nothing is lost but what happens when all watches are cut together,
	// because a server ends.
	hasAnchor bool
	// isBlind: all watchers may be down together. What they did not see is lost, if it was not recorded.
	isBlind bool
	// isProtected: the processors keep a Node by a finalizer until its labels are saved, and users
	// delete only nodes that have it. So nothing is lost, whoever is down, but an edit in the moment in which a Node is let go.
	isProtected bool
	// hasWebhook: a webhook puts the labels back in the request that creates a Node, as far as it is up, and its cache is not behind.
	// The API server asks it twice.
	hasWebhook bool
}

// scenarios are drawn from by the seed.
var scenarios = []scenario{
	{name: "anchored", hasAnchor: true},
	{name: "blind", isBlind: true},
	{name: "protected", isProtected: true},
}

// scenarioOf draws from a seed. Three in a row have every scenario, and one or two of them the webhook; six have all of both.
func scenarioOf(seed uint64) scenario {
	s := scenarios[seed%uint64(len(scenarios))]
	if s.hasWebhook = seed%2 == 1; s.hasWebhook {
		s.name += ", webhook"
	}
	return s
}

// processorArgs are the flags of the processors.
func (s scenario) processorArgs() []string {
	args := []string{"--save-delay=300ms"} // some saves are done together, and many are done while something is wrong
	if s.isProtected {
		args = append(args, "--protect=finalizer")
	}
	return args
}

// defaultPolicy is that of a processor without flags.
func defaultPolicy() labels.Policy {
	live, err := labels.ParsePatterns(labels.DefaultLive)
	if err != nil {
		panic(err)
	}
	return labels.Policy{Mode: labels.Replace, Live: live}
}
