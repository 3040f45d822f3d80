package ring

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/daemon/shortwatch"
	"nodekeeper.dev/sharding/shardlease"
)

// orphanDurations is after how many durations the Lease of a dead member is deleted.
const orphanDurations = 4

// Config is what a Member is made from. Of the embedded one, Renewed must not be set. Standby may be
// left out.
type Config struct {
	shardlease.Config

	// GroupLabel is the key, and Group the value, of the label that all Leases of the group have.
	GroupLabel, Group string
	// Standby makes the member start as one that does not serve, see [Member.SetServing].
	Standby bool
}

// Member is one replica's place in a group. Its methods are safe for concurrent use; Run must be called
// once.
type Member struct {
	config   Config
	keeper   *shardlease.Keeper
	leases   shardlease.Watch
	snapshot atomic.Pointer[snapshot]

	changes, ringChanges subscribers
}

// New returns a Member. It knows of nobody before Run has seen some.
func New(cfg Config) *Member {
	cfg.Duration = shardlease.DefaultDuration(cfg.Duration)
	cfg.Labels = map[string]string{cfg.GroupLabel: cfg.Group}
	m := &Member{leases: shardlease.Watch{
		Client: shortwatch.Leases(cfg.Client), Namespace: cfg.Namespace, Selector: cfg.GroupLabel + "=" + cfg.Group,
		Period: shardlease.RetryPeriod(cfg.Duration), OrphanAfter: orphanDurations * cfg.Duration,
	}}
	cfg.Renewed = m.leases.Look
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

// Run is a member until ctx is cancelled; then it releases the Lease, for two seconds at most, and
// returns.
func (m *Member) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { m.keeper.Run(ctx) })
	wg.Go(func() { m.tidy(ctx) })
	if err := m.leases.Run(ctx, m.look); err != nil {
		return fmt.Errorf("watching group %q: %w", m.config.Group, err)
	}
	return nil
}

// Annotate makes the member's Lease have an annotation; an empty value removes it. See
// [shardlease.Keeper.Annotate].
func (m *Member) Annotate(key, value string) { m.keeper.Annotate(key, value) }

// SetServing tells the group whether this member serves keys. One that does not keeps its Lease,
// but owns nothing and comes after all who serve.
func (m *Member) SetServing(serving bool) {
	value := "true"
	if serving {
		value = ""
	}
	m.Annotate(StandbyKey(m.config.GroupLabel), value)
	m.leases.Look()
}

// Peer is another replica of the group as its Lease shows it.
type Peer struct {
	Name string
	// UID is that of the Lease. It changes when the replica creates its Lease again.
	UID   types.UID
	State shardlease.State
	// Serving reports whether the peer takes part in the ring while its state is that of a member.
	Serving bool
	// Since is when the Lease was last seen to change, or by when it was last written if that was
	// before this member started.
	Since time.Time
	// Annotations are those of the Lease. They must not be modified.
	Annotations map[string]string
}

// Peers returns the other replicas of the group, dead ones too, by name, with their states as of
// now.
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

// Annotation returns the value of an annotation that this member's Lease was seen to have among
// those of the group, "" if none. [Member.Peers] then has everybody whose Lease was stored before
// that annotation.
func (m *Member) Annotation(key string) string {
	for _, s := range m.snapshot.Load().leases {
		if s.Lease.Name == m.config.Name {
			return s.Lease.Annotations[key]
		}
	}
	return ""
}

// Joined reports whether this process has stored its Lease and seen it among those of the group.
// From then on [Member.Peers] has everybody whose Lease was stored before this member's: of two
// that join at a time, at least one knows the other.
func (m *Member) Joined() bool { return m.snapshot.Load().joined }

// Heard returns when this member sent the latest of its renewals that has come back by the watch of
// the group. Zero means that none has. A watch delivers changes in order, so a later call of
// [Member.Peers] returns everything that others stored before that time: a peer whose Lease did not
// change until then was silent. A member that is cut off hears nothing, and its peers may not be
// silent.
func (m *Member) Heard() time.Time { return m.snapshot.Load().heard }

// Renew renews the Lease soon, before its time, so that [Member.Heard] advances. It does not wait.
// Each call costs a write: do not call it more often than once a second.
func (m *Member) Renew() { m.keeper.Renew() }

// View returns what the member knows of its group. It is never nil.
func (m *Member) View() *View { return m.snapshot.Load().view }

// Place returns where the member stands for a key now, see [View.Place].
func (m *Member) Place(key string) Place { return m.View().Place(key) }

// Changes returns a channel that receives after the Lease of any member, a state, [Member.Joined]
// or [Member.Heard] has changed. Several changes may come as one. Each call returns a channel of
// its own, which lasts as long as the member.
func (m *Member) Changes() <-chan struct{} { return m.changes.add() }

// RingChanges returns a channel that receives after [Member.Place] may have changed. It is a channel
// as those of [Member.Changes].
func (m *Member) RingChanges() <-chan struct{} { return m.ringChanges.add() }

// Confirm proves that etcd was not restored to a state from before a given time, see
// [shardlease.Keeper.Confirm].
func (m *Member) Confirm(ctx context.Context, before time.Time) (until time.Time, err error) {
	return m.keeper.Confirm(ctx, before)
}
