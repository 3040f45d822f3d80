package agent

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"nodekeeper.dev/placement/contract"
)

const (
	// minFollowPause and maxFollowPause bound the delay between two watches of the contract. The
	// delay doubles unless a watch lasts.
	minFollowPause, maxFollowPause = 200 * time.Millisecond, 5 * time.Second
	// watchTime is how long a watch lasts, at least. Up to as much is added, so that not all agents
	// watch again at once. A watch whose connection is dead without a sign ends then, too.
	watchTime = 5 * time.Minute
)

// follow sends each version of the contract to texts until ctx ends. The first version is read from
// the API server after follow was called.
func (a *agent) follow(ctx context.Context, texts chan<- string) {
	delay := minFollowPause
	for {
		began := time.Now()
		if err := a.watch(ctx, texts); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Info("Watching the contract failed, retrying", "error", err.Error())
		}
		if time.Since(began) > maxFollowPause {
			delay = minFollowPause
		}
		if !pause(ctx, delay) {
			return
		}
		delay = min(2*delay, maxFollowPause)
	}
}

// watch reads the contract, and watches it until the watch ends.
func (a *agent) watch(ctx context.Context, texts chan<- string) error {
	last := watchTime + rand.N(watchTime) //nolint:gosec // no secret
	ctx, cancel := context.WithTimeout(ctx, last+a.renewPeriod())
	defer cancel()
	answer := time.AfterFunc(2*a.renewPeriod(), cancel) // both requests have answers by then
	defer answer.Stop()
	cms := a.configMaps.ConfigMaps(a.Namespace)
	cm, err := cms.Get(ctx, a.Pod, metav1.GetOptions{})
	switch {
	case err == nil:
		send(ctx, texts, cm)
	case !apierrors.IsNotFound(err):
		return err
	}
	// Without a resourceVersion, the watch begins with the contract if it exists. That of a contract
	// may be too old for an API server that was started after its last change.
	w, err := cms.Watch(ctx, metav1.ListOptions{TimeoutSeconds: new(int64(last / time.Second)), FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, a.Pod).String()})
	if err != nil {
		return err
	}
	answer.Stop()
	defer w.Stop()
	for {
		var e watch.Event
		select {
		case e = <-w.ResultChan():
		case <-ctx.Done():
			return nil
		}
		cm, ok := e.Object.(*corev1.ConfigMap)
		switch {
		case e.Object == nil: // the watch has ended
			return nil
		case e.Type == watch.Error:
			return apierrors.FromObject(e.Object)
		case ok && (e.Type == watch.Added || e.Type == watch.Modified):
			send(ctx, texts, cm)
		}
	}
}

func send(ctx context.Context, texts chan<- string, cm *corev1.ConfigMap) {
	select {
	case texts <- cm.Data[contract.DataKey]:
	case <-ctx.Done():
	}
}
