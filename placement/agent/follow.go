package agent

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"nodekeeper.dev/placement/contract"
)

// followPause is the delay between two watches of the contract.
const followPause = 200 * time.Millisecond

// follow sends each version of the contract to texts until ctx ends. The first version is read from
// the API server after follow was called.
func (a *agent) follow(ctx context.Context, texts chan<- string) {
	for {
		if err := a.watch(ctx, texts); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Info("Watching the contract failed, retrying", "error", err.Error())
		}
		if !pause(ctx, followPause) {
			return
		}
	}
}

// watch reads the contract, and watches it until the watch ends.
func (a *agent) watch(ctx context.Context, texts chan<- string) error {
	cms, since := a.configMaps.ConfigMaps(a.Namespace), ""
	cm, err := cms.Get(ctx, a.Pod, metav1.GetOptions{})
	switch {
	case err == nil:
		send(ctx, texts, cm)
		since = cm.ResourceVersion
	case !apierrors.IsNotFound(err):
		return err
	}
	// Without a resourceVersion, the watch begins with the contract if it exists by now.
	w, err := cms.Watch(ctx, metav1.ListOptions{ResourceVersion: since, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, a.Pod).String()})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		cm, ok := e.Object.(*corev1.ConfigMap)
		switch {
		case e.Type == watch.Error:
			return apierrors.FromObject(e.Object)
		case ok && (e.Type == watch.Added || e.Type == watch.Modified):
			send(ctx, texts, cm)
		}
	}
	return nil
}

func send(ctx context.Context, texts chan<- string, cm *corev1.ConfigMap) {
	select {
	case texts <- cm.Data[contract.DataKey]:
	case <-ctx.Done():
	}
}
