package cli

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// TestMissingRightIsReported checks that an informer, which first tries a watch that begins with a
// list, reports the right that is missing, and no other.
func TestMissingRightIsReported(t *testing.T) {
	t.Parallel()
	forbidden := func(verb string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New(verb))
	}
	for missing, mayList := range map[string]bool{"list": false, "watch": true} {
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var initial int
			var reported []string
			health := &watchHealth{onError: func(err error) {
				if reported = append(reported, err.Error()); len(reported) == 2 {
					cancel()
				}
			}}
			informer := health.newInformer(&toolscache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					if mayList {
						return &corev1.ConfigMapList{}, nil
					}
					return nil, forbidden("list")
				},
				WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
					if options.SendInitialEvents != nil {
						initial++
					}
					return nil, forbidden("watch")
				},
			}, &corev1.ConfigMap{}, 0, nil)
			require.NoError(t, informer.SetWatchErrorHandlerWithContext(func(context.Context, *toolscache.Reflector, error) {}))
			informer.RunWithContext(ctx)
			assert.Equal(t, []string{forbidden(missing).Error(), forbidden(missing).Error()}, reported)
			assert.Equal(t, 2, initial)
		})
	}
}
