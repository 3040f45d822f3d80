// Package controller contains tests of the controller of placement on a real API server. The tests
// play the pods: they write Leases, read contracts and acknowledge them.
package controller
