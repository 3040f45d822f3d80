package shardlease

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

const (
	// defaultDuration makes a member renew every five seconds: that is all that a quiet replica
	// writes.
	defaultDuration = 15 * time.Second
	// releaseTimeout bounds the release of the Lease at shutdown. A Lease that is not released
	// expires.
	releaseTimeout = 2 * time.Second
	// renewals is how often a Lease is renewed in one duration. Failed writes are retried, and
	// states recomputed, as often in one such period as retries says.
	renewals, retries = 3, 5
	// orphanDurations is after how many durations the Lease of a dead member is deleted.
	orphanDurations = 4
)

// Config is what a Member is made from. All fields are required but Duration, Standby and
// Annotations.
type Config struct {
	// Client reads and writes the Leases.
	Client coordinationv1client.LeasesGetter
	// Namespace is where the Leases of the group are.
	Namespace string
	// GroupLabel is the key, and Group the value, of the label that all Leases of the group have.
	GroupLabel, Group string
	// Name is the name of this member and of its Lease. It must be unique in the namespace.
	Name string
	// Duration is how long a member is ready without a renewal, in whole seconds. Zero: 15 seconds.
	Duration time.Duration
	// Standby makes the member start as one that does not serve, see [Member.SetServing].
	Standby bool
	// Annotations are what the member's Lease has from its first write on, whoever wrote it before:
	// it costs no write of its own, and a peer that takes the Lease over keeps it. Each renewal
	// writes all of them, so they should be small.
	Annotations map[string]string
}

// Member is one replica's place in a group. It keeps its Lease by conditional writes of its own and
// not by client-go's elector: a Lease that is named like its holder has no contenders, and the
// elector can neither write at once nor tell what its last write was conditional on, which
// [Member.Confirm] needs. All annotations of the Lease belong to the member. Its methods are safe
// for concurrent use; Run must be called once.
type Member struct {
	config   Config
	keeper   *keeper
	ages     Sightings // of the Leases of the group, for the view
	snapshot atomic.Pointer[snapshot]
	looks    chan struct{} // asks for a look at the group

	changes, ringChanges subscribers

	mu sync.Mutex
	// annotations are those that the Lease must have.
	annotations map[string]string
}

// New returns a Member. It knows of nobody before Run has seen some.
func New(cfg Config) *Member {
	if cfg.Duration == 0 {
		cfg.Duration = defaultDuration
	}
	m := &Member{config: cfg, annotations: maps.Clone(cfg.Annotations), looks: make(chan struct{}, 1)}
	if m.annotations == nil {
		m.annotations = map[string]string{}
	}
	if cfg.Standby {
		m.annotations[StandbyKey(cfg.GroupLabel)] = "true"
	}
	m.keeper = newKeeper(cfg, m.desired, func() { poke(m.looks) })
	m.snapshot.Store(&snapshot{view: &View{name: cfg.Name}})
	return m
}

// StandbyKey returns the key of the annotation that marks the Lease of a member that does not
// serve.
func StandbyKey(groupLabel string) string { return groupLabel + "-standby" }

// renewPeriod is the time between two renewals.
func (c Config) renewPeriod() time.Duration { return c.Duration / renewals }

// retryPeriod is the time after which a write that failed is retried.
func (c Config) retryPeriod() time.Duration { return c.renewPeriod() / retries }

func (c Config) leases() coordinationv1client.LeaseInterface { return c.Client.Leases(c.Namespace) }

func (c Config) orphanAfter() time.Duration { return orphanDurations * c.Duration }

// Run is a member until ctx is cancelled; then it releases the Lease, for two seconds at most, and
// returns.
func (m *Member) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	released := make(chan struct{})
	go func() {
		defer close(released)
		m.keeper.run(ctx)
	}()
	wg.Go(func() { m.tidy(ctx) })
	if err := m.watch(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(releaseTimeout)
	defer timer.Stop()
	select {
	case <-released:
	case <-timer.C: // The API server does not answer, perhaps not even the connection: the process may end without the keeper.
	}
	return nil
}

// Annotate makes the member's Lease have an annotation; an empty value removes it. It is stored
// soon, together with the others that are not stored yet, and retried until it is stored or
// replaced by another value.
func (m *Member) Annotate(key, value string) {
	m.mu.Lock()
	if value == "" {
		delete(m.annotations, key)
	} else {
		m.annotations[key] = value
	}
	m.mu.Unlock()
	poke(m.keeper.changed)
}

// SetServing tells the group whether this member serves keys. One that does not keeps its Lease,
// but owns nothing and comes after all who serve.
func (m *Member) SetServing(serving bool) {
	value := "true"
	if serving {
		value = ""
	}
	m.Annotate(StandbyKey(m.config.GroupLabel), value)
	poke(m.looks)
}

func (m *Member) desired() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.annotations)
}

// Peer is another replica of the group as its Lease shows it.
type Peer struct {
	Name string
	// UID is that of the Lease. It changes when the replica creates its Lease again.
	UID   types.UID
	State State
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
		if s.lease.Name == m.config.Name {
			continue
		}
		peers = append(peers, Peer{
			Name: s.lease.Name, UID: s.lease.UID, State: StateOf(s.lease, now.Sub(s.since), m.config.orphanAfter()),
			Serving: s.serving, Since: s.since, Annotations: s.lease.Annotations,
		})
	}
	return peers
}

// Annotation returns the value of an annotation that this member's Lease was seen to have among
// those of the group, "" if none. [Member.Peers] then has everybody whose Lease was stored before
// that annotation.
func (m *Member) Annotation(key string) string {
	for _, s := range m.snapshot.Load().leases {
		if s.lease.Name == m.config.Name {
			return s.lease.Annotations[key]
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
func (m *Member) Renew() { poke(m.keeper.wanted) }

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

// ErrUnproven means that the Lease does not show that the cluster's history is the one that this
// process has seen.
var ErrUnproven = errors.New("the Lease of this member was not renewed without a break since then")

// Confirm proves that etcd was not restored to a state from before a given time. It renews the
// Lease at once, on the condition that it is as this member has last stored it. As each renewal has
// the one before as its condition, success shows that all of them are part of the cluster's
// history, and with the last one that was sent before that time everything that this process had
// observed by then. Confirm returns when that one was sent. It returns [ErrUnproven] if somebody
// else has written the Lease since, or if there was no renewal before that time; any other error is
// worth a retry.
//
// The proof holds for objects in the etcd that stores the Leases (see kube-apiserver
// --etcd-servers-overrides). Renewals after that time prove nothing about what came before them:
// they may have been sent to the restored etcd.
func (m *Member) Confirm(ctx context.Context, before time.Time) (until time.Time, err error) {
	return m.keeper.confirm(ctx, before)
}
