package ring

// Tidy exports the method that updates the Leases of a ring.
var Tidy = (*Controller).tidy
