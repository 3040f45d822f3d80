package simulation

import "nodekeeper.dev/test/schedules"

// found has the seeds of schedules that expose the mutants for which a search takes long. If the
// meaning of seeds changes, -search finds new ones.
var found = schedules.Recorded{
	"added: a later state is dropped":                                              30_203,
	"edits: an end whose edits change nothing is not noted":                        149_492,
	"edits: what was set and removed before a restore comes back":                  10_292,
	"processor: knows the record before the node":                                  26_097,
	"processor: reads the record before the node":                                  10_590,
	"processor: removes whatever has the name":                                     149_671,
	"processor: restores from a cached record":                                     8_183,
	"protection: merges what is on record already":                                 20_261_130_171_667_152,
	"refused: a label that cannot be removed is put onto the next node":            358_492,
	"refused: the label is never tried again":                                      60_341,
	"refused: what a user sets does not replace the label":                         129_330,
	"refused: what an answer names is refused":                                     32_968,
	"save: the same labels of the restored incarnation are dropped":                94_520,
	"save: the same labels of the restored incarnation do not move the version on": 94_520,
	"save: the same labels of the source, seen later, are dropped":                 17_263,
	"save: the same labels of the source, seen later, move the version on":         73_882,
	"save: what was before a restore counts, unnoted":                              1_049_268,
	"trust: a label that was set since does not count":                             25_071,
	"trust: putting back undoes edits":                                             31_037,
	"trust: there is no recheck":                                                   69_673,
	"trust: what is withheld is forgotten with the next save":                      80_199,
	"watcher: ignores what is not applied":                                         188_512,
	"watcher: lists the records before the nodes":                                  24_608,
	"watcher: trusts labels that are the same after a gap":                         908_807,
	"webhook: a restricted label that it gave counts as set by a user":             29_082,
	"webhook: what it gave is the node's own":                                      7_410,
}
