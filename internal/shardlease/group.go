package shardlease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"nodekeeper.dev/internal/shortwatch"
)

// snapshot is what a look at the Leases of the group has found. It is immutable.
type snapshot struct {
	leases []seen // by name, the own one too
	view   *View
	joined bool
	heard  time.Time // see Member.Heard
}

// seen is the Lease of a member, since when it has been as it is, and what follows from that.
type seen struct {
	lease   *coordinationv1.Lease
	since   time.Time
	state   State
	serving bool
}

// watch keeps the snapshot up to date until ctx is cancelled.
func (m *Member) watch(ctx context.Context) error {
	informer := toolscache.NewSharedInformer(m.listWatch(), &coordinationv1.Lease{}, 0)
	tell := func() { poke(m.looks) }
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { tell() }, UpdateFunc: func(any, any) { tell() }, DeleteFunc: func(any) { tell() },
	})
	if err != nil {
		return fmt.Errorf("watching the Leases of group %q: %w", m.config.Group, err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { informer.RunWithContext(ctx) })
	defer wg.Wait()
	select {
	case <-ctx.Done():
		return nil
	case <-informer.HasSyncedChecker().Done():
		tell()
	}
	tick := time.NewTicker(m.config.retryPeriod()) // a member that is silent causes no event
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-m.looks:
		}
		m.look(ctx, informer.GetStore().List())
	}
}

func (m *Member) listWatch() toolscache.ListerWatcher {
	selector := m.config.GroupLabel + "=" + m.config.Group
	leases := m.config.leases()
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			return leases.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			opened, err := leases.Watch(ctx, options)
			if err != nil {
				return nil, err //nolint:wrapcheck // for the reflector, which looks at its kind
			}
			return shortwatch.Hold(opened, nil), nil
		},
	}
}

// look makes a snapshot of the Leases.
func (m *Member) look(ctx context.Context, all []any) {
	before, now := m.snapshot.Load(), time.Now()
	after := &snapshot{joined: before.joined, heard: before.heard}
	standbyKey, annotations := StandbyKey(m.config.GroupLabel), m.desired()
	names := map[string]bool{}
	var ready, unready []string
	for _, obj := range all {
		l, ok := obj.(*coordinationv1.Lease)
		if !ok {
			continue // an informer of Leases holds nothing else
		}
		names[l.Name] = true
		s := seen{lease: l, since: m.see(l, now), serving: l.Annotations[standbyKey] != "true"}
		s.state = StateOf(l, now.Sub(s.since), m.config.orphanAfter())
		own := l.Name == m.config.Name
		if own {
			s.serving = annotations[standbyKey] != "true"
			after.joined = after.joined || m.keeper.hasStored(l)
			if sent, ok := m.keeper.sentAt(l); ok && sent.After(after.heard) {
				after.heard = sent
			}
		}
		switch {
		case !s.serving || !s.state.Member():
		case own || s.state == Ready: // this member is alive, however late its renewals are
			ready = append(ready, l.Name)
		default:
			unready = append(unready, l.Name)
		}
		after.leases = append(after.leases, s)
	}
	m.ages.Keep(names)
	slices.SortFunc(after.leases, func(a, b seen) int { return cmp.Compare(a.lease.Name, b.lease.Name) })
	after.view = newView(m.config.Name, ready, unready, before.view)
	m.snapshot.Store(after)
	membersChanged := !slices.Equal(before.view.Members(), after.view.Members())
	if membersChanged {
		logf.FromContext(ctx).Info("Ring membership changed", "ring", m.config.Group, "members", after.view.Members())
	}
	if before.joined != after.joined || !before.heard.Equal(after.heard) || !slices.EqualFunc(before.leases, after.leases, sameLease) {
		m.changes.tell()
	}
	if membersChanged || !slices.Equal(before.view.Ready(), after.view.Ready()) {
		m.ringChanges.tell()
	}
}

// see notes a Lease and returns since when it is unchanged. The age of one that was there before
// this member is what the cluster stores; from then on only the own clock counts, so that a clock
// that is off cannot make a live member look dead for longer than a renewal.
func (m *Member) see(l *coordinationv1.Lease, now time.Time) time.Time {
	if !m.ages.Has(l.Name) {
		return m.ages.See(l, StoredSince(l, now))
	}
	return m.ages.See(l, now)
}

func sameLease(a, b seen) bool {
	return a.lease.UID == b.lease.UID && a.lease.ResourceVersion == b.lease.ResourceVersion && a.state == b.state && a.serving == b.serving
}
