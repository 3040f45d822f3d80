package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// secrets is how many there are, and editPeriod the time between two edits of one of them. Each edit is work for a shard.
	secrets    = 300
	editPeriod = 20 * time.Millisecond
)

// user creates and edits Secrets. Its methods but failure and stop belong to one goroutine.
type user struct {
	api    client.Client
	edits  atomic.Int64
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu  sync.Mutex
	err error
}

func secretName(i int) string { return fmt.Sprintf("s-%d", i) }

// create creates all Secrets, and returns how many had a shard in their first version.
func (u *user) create(ctx context.Context) (assigned int, err error) {
	var had atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(20)
	for i := range secrets {
		group.Go(func() error {
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: objectNamespace, Name: secretName(i)}, Data: map[string][]byte{"key": []byte("0")}}
			if err := u.api.Create(ctx, s); err != nil {
				return err
			}
			if s.Labels[prefix.ShardLabel(ringName)] != "" {
				had.Add(1)
			}
			return nil
		})
	}
	err = group.Wait()
	return int(had.Load()), err
}

// start edits Secrets, one after the other, until stop.
func (u *user) start(ctx context.Context) {
	ctx, u.cancel = context.WithCancel(ctx)
	u.done.Go(func() {
		tick := time.NewTicker(editPeriod)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := u.edit(ctx, rand.IntN(secrets)); err != nil && ctx.Err() == nil {
				u.mu.Lock()
				u.err = err
				u.mu.Unlock()
				return
			}
		}
	})
}

func (u *user) edit(ctx context.Context, i int) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: objectNamespace, Name: secretName(i)}}
	patch := fmt.Sprintf(`{"stringData":{"key":"%d"}}`, u.edits.Add(1))
	return u.api.Patch(ctx, s, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// failure returns the error that has ended the edits.
func (u *user) failure() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// stop ends the edits.
func (u *user) stop() {
	if u.cancel != nil {
		u.cancel()
	}
	u.done.Wait()
}
