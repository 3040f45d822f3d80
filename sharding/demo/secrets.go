package main

import (
	"context"
	"errors"
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

	"nodekeeper.dev/sharding/internal/ringview"
)

const (
	// secrets is how many there are, and editPeriod the time between two edits of one of them. Each
	// edit is work for a shard.
	secrets    = 300
	editPeriod = 20 * time.Millisecond
	// shown is how many Secrets have their owners printed each time.
	shown = 3
)

// user creates and edits Secrets.
type user struct {
	api    client.Client
	edits  atomic.Int64
	cancel context.CancelFunc
	done   sync.WaitGroup
	failed atomic.Pointer[error]
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
			err := u.api.Create(ctx, s)
			if s.Labels[prefix.ShardLabel(ringName)] != "" {
				had.Add(1)
			}
			return err
		})
	}
	err = group.Wait()
	return int(had.Load()), err
}

// start edits Secrets, one after the other, until stop or the first error.
func (u *user) start(ctx context.Context) {
	ctx, u.cancel = context.WithCancel(ctx)
	u.done.Go(func() {
		for tick := time.Tick(editPeriod); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick:
			}
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: objectNamespace, Name: secretName(rand.IntN(secrets))}}
			patch := fmt.Sprintf(`{"stringData":{"key":"%d"}}`, u.edits.Add(1))
			if err := u.api.Patch(ctx, s, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil && ctx.Err() == nil {
				u.failed.Store(&err)
				return
			}
		}
	})
}

// failure returns the error that has ended the edits.
func (u *user) failure() error {
	if err := u.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// stop ends the edits.
func (u *user) stop() {
	if u.cancel != nil {
		u.cancel()
	}
	u.done.Wait()
}

// counts returns how many Secrets each shard has; those that no shard has count for "".
func (d *demo) counts(ctx context.Context) (map[string]int, error) {
	list := &corev1.SecretList{}
	if err := d.API.List(ctx, list, client.InNamespace(objectNamespace)); err != nil {
		return nil, err
	}
	all := map[string]int{}
	for _, secret := range list.Items {
		all[secret.Labels[prefix.ShardLabel(ringName)]]++
	}
	return all, nil
}

// untilChecksums waits until each Secret has its ConfigMap, at the same shard.
func (d *demo) untilChecksums(ctx context.Context) error {
	return d.Until(ctx, func(ctx context.Context) error {
		owners, stored := &corev1.SecretList{}, &corev1.ConfigMapList{}
		err := errors.Join(d.API.List(ctx, owners, client.InNamespace(objectNamespace)), d.API.List(ctx, stored, client.InNamespace(objectNamespace)))
		at := map[string]string{}
		for _, cm := range stored.Items {
			at[cm.Name] = cm.Labels[prefix.ShardLabel(ringName)]
		}
		for _, secret := range owners.Items {
			if shard, has := at["checksums-"+secret.Name]; !has || shard != secret.Labels[prefix.ShardLabel(ringName)] {
				err = errors.Join(err, fmt.Errorf("%s has no ConfigMap at the same shard", secret.Name))
			}
		}
		return err
	})
}

// show prints the shards with their shares, how many Secrets each has, and who has some of them and why.
func (d *demo) show(ctx context.Context) error {
	r, err := d.view.Ring(ctx, ringName)
	if err != nil {
		return err
	}
	has, err := d.counts(ctx)
	if err != nil {
		return err
	}
	lines := []string{fmt.Sprintf("%-8s %-10s %5s %7s %8s", "SHARD", "STATE", "SLOTS", "SHARE", "SECRETS")}
	for _, m := range r.Members {
		lines = append(lines, fmt.Sprintf("%-8s %-10s %5d %6.1f%% %8d", m.Name, m.State, m.Slots, m.Share, has[m.Name]))
	}
	d.Action(time.Now(), "table", fmt.Sprintf("generation %d, %d Secrets move, %d wait for a shard", r.Table, r.Moving, has[""]), lines...)
	if len(has) == 0 {
		return nil
	}
	mapping, err := d.API.RESTMapper().RESTMapping(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind())
	if err != nil {
		return err
	}
	lines = nil
	for i := range shown {
		var owner []ringview.Ownership
		if _, owner, err = d.view.Owners(ctx, ringName, mapping, objectNamespace, secretName(i)); err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%s is %s to %s: %s", secretName(i), owner[0].State, owner[0].Owner, owner[0].Why))
	}
	d.Action(time.Now(), "owners", lines[0], lines[1:]...)
	return nil
}
