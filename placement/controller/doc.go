// Package controller is the part of placement that decides. For each pool, one loop takes all that
// it has seen of Leases, contracts and resources, computes everything with the pure packages, and
// writes what differs: first the statuses of the resources with the decisions, then the contracts.
//
// The loop runs when something changes that matters, at most every 50 ms. It never trusts its cache
// where that could let two pods work on one virtual replica: each write has the resourceVersion
// from which it was computed, and what the contract package requires to be read live is read live.
package controller
