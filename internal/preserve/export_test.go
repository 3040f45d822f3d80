package preserve

// MergedEnd returns an end with the transactions that it supersedes, as [Decide] merges them.
var MergedEnd = merged
