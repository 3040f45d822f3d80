package service

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// servePeriod is how often [ServeWhile] checks. It costs a write only when the result changes.
const servePeriod = time.Second

// Server is a member of a ring that can publish whether it serves.
type Server interface {
	SetServing(serving bool)
}

// ServeWhile returns a runnable that makes a member serve while all checks succeed. The member must
// not serve before the runnable runs. The checks get no request.
func ServeWhile(member Server, checks ...healthz.Checker) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		serving := false
		wait.UntilWithContext(ctx, func(context.Context) {
			fails := slices.ContainsFunc(checks, func(check healthz.Checker) bool { return check(nil) != nil })
			if serving == fails {
				serving = !fails
				member.SetServing(serving)
			}
		}, servePeriod)
		return nil
	})
}
