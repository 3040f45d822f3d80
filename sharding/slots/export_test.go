package slots

// Hash is the hash whose remainder is the slot, for a measurement of other numbers of slots.
var Hash = hash
