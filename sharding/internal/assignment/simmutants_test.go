package assignment

import "time"

// mutant is the real system with one rule broken. The zero value breaks none.
type mutant struct {
	// narrow changes the settings, for mutants that are detected only if many events coincide.
	narrow func(*settings)
	// breaks is the promise that the mutant breaks.
	breaks  error
	settles bool // the mutant is detected only after everything has settled
	// knows changes what a process knows of an object, after each step.
	knows func(object) object
	// awaits changes what a process knows of writes without an answer, before each step.
	awaits func(unanswered) unanswered

	ignoresLeases, ignoresDeadlines, patchesBlindly, neverResyncs, takesEarly     bool
	actsPastLease, returnsAtOnce, startsWhileDrained, forgetsSent, trustsOldCache bool
	acknowledgesEarly, releasesAnyVersion, forcesUnfenced, trustsViews            bool
}

var mutants = map[string]mutant{ //nolint:gochecknoglobals // a constant
	"": {}, // the real rules

	"premise: a shard that is not in the table is dead":           {breaks: errS5, ignoresLeases: true},
	"premise: it holds for ever":                                  {breaks: errS5, narrow: single, ignoresDeadlines: true},
	"write: without a test of labels":                             {breaks: errS2, patchesBlindly: true},
	"resync: never":                                               {breaks: errS3, neverResyncs: true, settles: true},
	"death: after a second":                                       {breaks: errS5, narrow: single, takesEarly: true},
	"force: without a fence":                                      {breaks: errS5, narrow: func(s *settings) { s.forces = true }, forcesUnfenced: true},
	"children: where they are is forgotten":                       {settles: true, breaks: errS3, knows: func(o object) object { o.life.children.isDone = false; return o }},
	"children: a view is always recent":                           {breaks: errS2, narrow: (*settings).leave, trustsViews: true},
	"children: a write that has failed never arrives":             {breaks: errS2, narrow: (*settings).leave, awaits: func(w unanswered) unanswered { w.until = time.Time{}; return w }},
	"children: they are where they were":                          {breaks: errS4, knows: func(o object) object { o.life.children.isDone = o.life.children.to != ""; return o }},
	"shard: acts past its Lease":                                  {breaks: errS1, narrow: single, actsPastLease: true},
	"shard: acts on the version that it has released":             {breaks: errS1, narrow: single, startsWhileDrained: true, forgetsSent: true},
	"shard: acts at once when it returns":                         {breaks: errS5, narrow: single, returnsAtOnce: true},
	"shard: trusts what its cache has from before it had a Lease": {breaks: errS2, trustsOldCache: true},
	"shard: acknowledges while it acts":                           {breaks: errS2, acknowledgesEarly: true},
	"shard: acknowledges any version":                             {breaks: errS4, releasesAnyVersion: true},
}

// single narrows the settings to a single object without children, and to processes that freeze.
func single(s *settings) {
	s.mains, s.children, s.policy, s.freezes, s.kills, s.leaves = 1, false, true, 24, 4, false
}
