package ring

// Tidy is called with every look at a ring.
var Tidy = (*Controller).tidy
