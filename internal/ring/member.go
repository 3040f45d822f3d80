package ring

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/daemon/shortwatch"
	"nodekeeper.dev/sharding/shardlease"
)

// orphanDurations is after how many durations the Lease of a dead member is deleted.
const orphanDurations = 4

// Config configures a Member. Renewed and SetBack of the embedded Config must not be set. Standby is
// optional.
type Config struct {
	shardlease.Config

	// GroupLabel and Group are the key and the value of a label that all Leases of the group have.
	GroupLabel, Group string
	// Standby makes the member start without serving, see [Member.SetServing].
	Standby bool
}

// Member is one replica's place in a group. Its methods are safe for concurrent use; Run must be
// called once.
type Member struct {
	config   Config
	keeper   *shardlease.Keeper
	setBack  atomic.Bool // an earlier version of the Lease was seen
	leases   shardlease.Watch
	snapshot atomic.Pointer[snapshot]

	changes, ringChanges subscribers
}

// New returns a Member. Its view is empty until Run has seen other members.
func New(cfg Config) *Member {
	cfg.Duration = shardlease.DefaultDuration(cfg.Duration)
	cfg.Labels = map[string]string{cfg.GroupLabel: cfg.Group}
	m := &Member{leases: shardlease.Watch{
		Client: shortwatch.Leases(cfg.Client), Namespace: cfg.Namespace, Selector: cfg.GroupLabel + "=" + cfg.Group,
		Period: shardlease.RetryPeriod(cfg.Duration), OrphanAfter: orphanDurations * cfg.Duration,
	}}
	cfg.Renewed, cfg.SetBack = m.leases.Look, func() { m.setBack.Store(true) }
	if cfg.Standby {
		about := map[string]string{StandbyKey(cfg.GroupLabel): "true"}
		maps.Copy(about, cfg.Annotations)
		cfg.Annotations = about
	}
	m.config, m.keeper = cfg, shardlease.NewKeeper(cfg.Config)
	m.snapshot.Store(&snapshot{view: &View{name: cfg.Name}})
	return m
}

// StandbyKey returns the key of the annotation that marks the Lease of a member that does not
// serve.
func StandbyKey(groupLabel string) string { return groupLabel + "-standby" }

// Run runs the member until ctx is cancelled. It then releases the Lease, for two seconds at most,
// and returns.
func (m *Member) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { m.keeper.Run(ctx) })
	wg.Go(func() { m.tidy(ctx) })
	if err := m.leases.Run(ctx, m.refresh); err != nil {
		return fmt.Errorf("watching group %q: %w", m.config.Group, err)
	}
	return nil
}

// Annotate sets an annotation of the member's Lease; an empty value removes it. See
// [shardlease.Keeper.Annotate].
func (m *Member) Annotate(key, value string) { m.keeper.Annotate(key, value) }

// SetServing publishes whether this member serves keys. A member that does not serve keeps its
// Lease, but owns nothing and comes after all members that serve.
func (m *Member) SetServing(serving bool) {
	value := "true"
	if serving {
		value = ""
	}
	m.Annotate(StandbyKey(m.config.GroupLabel), value)
	m.leases.Look()
}

// Peer is another replica of the group, as described by its Lease.
type Peer struct {
	Name string
	// UID is the UID of the Lease. It changes when the replica creates its Lease again.
	UID   types.UID
	State shardlease.State
	// Serving reports whether the peer takes part in the ring, if its state is a member's.
	Serving bool
	// Since is when the Lease was last seen to change, or a bound on its last write if that was
	// before this member started.
	Since time.Time
	// Annotations are the Lease's annotations. They must not be modified.
	Annotations map[string]string
}

// Peers returns the other replicas of the group, including dead ones, by name, with their current
// states.
func (m *Member) Peers() []Peer {
	now := time.Now()
	var peers []Peer
	for _, s := range m.snapshot.Load().leases {
		if s.Lease.Name == m.config.Name {
			continue
		}
		peers = append(peers, Peer{
			Name: s.Lease.Name, UID: s.Lease.UID, State: shardlease.StateOf(s.Lease, now.Sub(s.Since), m.leases.OrphanAfter),
			Serving: s.serving, Since: s.Since, Annotations: s.Lease.Annotations,
		})
	}
	return peers
}

// Annotation returns the value of an annotation that this member's Lease was seen to have among the
// group's Leases, or "". From then on, [Member.Peers] includes every peer whose Lease was stored
// before that annotation.
func (m *Member) Annotation(key string) string {
	for _, s := range m.snapshot.Load().leases {
		if s.Lease.Name == m.config.Name {
			return s.Lease.Annotations[key]
		}
	}
	return ""
}

// Joined reports whether this process has stored its Lease and seen it among the group's. From then
// on [Member.Peers] includes every peer whose Lease was stored before this member's: if two members
// join concurrently, at least one sees the other.
func (m *Member) Joined() bool { return m.snapshot.Load().joined }

// SyncedAt returns when this member sent its latest renewal that the watch of the group has
// delivered, or zero if there is none. A watch delivers changes in order, so a later call of
// [Member.Peers] returns everything that others stored before that time: a peer whose Lease has not
// changed until then was silent. While a member is disconnected, SyncedAt does not advance, and its
// peers may not be silent.
func (m *Member) SyncedAt() time.Time { return m.snapshot.Load().syncedAt }

// Renew renews the Lease soon, ahead of schedule, so that [Member.SyncedAt] advances. It does not
// wait. Each call costs a write: do not call it more than once per second.
func (m *Member) Renew() { m.keeper.Renew() }

// IsSetBack reports, by a live read, whether the Lease of this member is an earlier version than this
// process has stored, or was since it started: its etcd was restored from a backup. It is false if
// the Lease is gone, or may not be read.
func (m *Member) IsSetBack(ctx context.Context) (bool, error) {
	stored := m.keeper.Stored()
	l, err := m.config.Client.Leases(m.config.Namespace).Get(ctx, m.config.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return m.setBack.Load(), nil
	case err != nil:
		return false, fmt.Errorf("reading the Lease %q: %w", m.config.Name, err)
	}
	return shardlease.IsSetBack(l, stored) || m.setBack.Load(), nil
}

// View returns the member's current view of its group. It is never nil.
func (m *Member) View() *View { return m.snapshot.Load().view }

// Place returns the member's current place for a key, see [View.Place].
func (m *Member) Place(key string) Place { return m.View().Place(key) }

// Changes returns a channel that receives after the Lease of any member, a state, [Member.Joined]
// or [Member.SyncedAt] has changed. Several changes may be merged. Each call returns another
// channel, which lasts as long as the member.
func (m *Member) Changes() <-chan struct{} { return m.changes.add() }

// RingChanges returns a channel that receives after [Member.Place] may have changed. It behaves
// like the channels of [Member.Changes].
func (m *Member) RingChanges() <-chan struct{} { return m.ringChanges.add() }
