package contract

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// NewIncarnation returns the name of an incarnation: the UID of its pod, and a run that ends in the
// lease duration in seconds, for example "41f0…/7c1e09b2-15s". The name is in every decision, so a
// controller knows the lease duration of an incarnation even if its Lease is gone or was edited.
func NewIncarnation(pod types.UID, run string, leaseDuration time.Duration) string {
	return fmt.Sprintf("%s/%s-%ds", pod, run, leaseDuration/time.Second)
}

// LeaseDuration returns the lease duration in the name of an incarnation, or 0 if it has none.
func LeaseDuration(incarnation string) time.Duration {
	_, run, _ := strings.Cut(incarnation, "/")
	text, ok := strings.CutSuffix(run[strings.LastIndex(run, "-")+1:], "s")
	seconds, err := strconv.ParseInt(text, 10, 32)
	if !ok || err != nil || seconds <= 0 || !strings.Contains(run, "-") {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
