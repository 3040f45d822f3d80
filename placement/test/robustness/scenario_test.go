package robustness

// scenario determines what the pool is like, and what is exempt from faults.
type scenario struct {
	name string
	// isSet: a StatefulSet creates a pod that ends again under its name. Otherwise each pod that
	// replaces another one has a new name.
	isSet bool
	// isSteady: controllers and servers are exempt from faults, so conditions must be right all the
	// time.
	isSteady bool
}

// scenarioOf returns the scenario of a seed. Four consecutive seeds have every scenario.
func scenarioOf(seed uint64) scenario {
	s := scenario{name: "deployment", isSet: seed%2 == 0, isSteady: seed/2%2 == 1}
	if s.isSet {
		s.name = "set"
	}
	if s.isSteady {
		s.name += ", steady"
	}
	return s
}
