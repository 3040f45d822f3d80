package assignment

// mutant is the real system with one rule broken. The zero value breaks none.
type mutant struct {
	// narrow changes the settings, for mutants that are detected only if many events coincide.
	narrow  func(*settings)
	settles bool // the mutant is detected only after everything has settled
	// knows changes what a process knows of an object, after each step.
	knows func(object) object

	ignoresLeases, ignoresDeadlines, patchesBlindly, neverResyncs, takesEarly     bool
	actsPastLease, returnsAtOnce, startsWhileDrained, forgetsSent, trustsOldCache bool
	acknowledgesEarly, releasesAnyVersion                                         bool
}

var mutants = map[string]mutant{ //nolint:gochecknoglobals // a constant
	"": {}, // the real rules

	"premise: a shard that is not in the table is dead":           {ignoresLeases: true},
	"premise: it holds for ever":                                  {narrow: single, ignoresDeadlines: true},
	"write: without a test of labels":                             {patchesBlindly: true},
	"resync: never":                                               {neverResyncs: true, settles: true},
	"death: after a second":                                       {narrow: single, takesEarly: true},
	"children: a failed attempt is forgotten":                     {knows: func(o object) object { o.life.children.isScattered = false; return o }},
	"children: where they are is forgotten":                       {settles: true, knows: func(o object) object { o.life.children.at = ""; return o }},
	"children: they are where they were":                          {knows: func(o object) object { o.life.children.at = o.life.children.to; return o }},
	"shard: acts past its Lease":                                  {narrow: single, actsPastLease: true},
	"shard: acts on the version that it has released":             {narrow: single, startsWhileDrained: true, forgetsSent: true},
	"shard: acts at once when it returns":                         {narrow: single, returnsAtOnce: true},
	"shard: trusts what its cache has from before it had a Lease": {trustsOldCache: true},
	"shard: acknowledges while it acts":                           {acknowledgesEarly: true},
	"shard: acknowledges any version":                             {releasesAnyVersion: true},
}

// single narrows the settings to a single object without children, and to processes that freeze.
func single(s *settings) {
	s.mains, s.children, s.policy, s.freezes, s.kills = 1, false, true, 24, 4
}
