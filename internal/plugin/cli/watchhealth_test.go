package cli

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// TestMissingRightIsReportedOnce checks that without the rights to list and to watch, only the
// error of the list is reported: the informer tries a watch that begins with a list before each.
func TestMissingRightIsReportedOnce(t *testing.T) {
	t.Parallel()
	forbidden := func(verb string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "", errors.New(verb))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var lists, watches int
	var reported []string
	health := &watchHealth{onError: func(err error) {
		if reported = append(reported, err.Error()); len(reported) == 2 {
			cancel()
		}
	}}
	informer := health.newInformer(&toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			lists++
			return nil, forbidden("list")
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			watches++
			return nil, forbidden("watch")
		},
	}, &corev1.ConfigMap{}, 0, nil)
	assert.NoError(t, informer.SetWatchErrorHandlerWithContext(func(context.Context, *toolscache.Reflector, error) {}))
	informer.RunWithContext(ctx)
	assert.Equal(t, []string{forbidden("list").Error(), forbidden("list").Error()}, reported)
	assert.Equal(t, 2, lists)
	assert.Equal(t, 2, watches, "the informer began with a watch")
}
