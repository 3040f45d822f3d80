package agent

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"nodekeeper.dev/placement/contract"
	"nodekeeper.dev/placement/schedule"
)

// desk is a data plane whose program is played by the test. It must be used in a bubble of
// synctest.
type desk struct {
	*dataPlane

	t     *testing.T
	begin time.Time
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{t: t, begin: time.Now()}
	d.open(t.TempDir())
	return d
}

// open is the start of an agent.
func (d *desk) open(dir string) {
	d.t.Helper()
	var err error
	d.dataPlane, err = openDataPlane(dir, DefaultLeaseDuration, func() time.Duration { return time.Since(d.begin) })
	require.NoError(d.t, err)
}

// give lets the data plane follow a contract with one index of q, unless its epoch is 0.
func (d *desk) give(generation, epoch int64) {
	d.t.Helper()
	d.follow(d.t.Context(), &contract.Contract{Incarnation: "u/1-15s", Generation: generation, Entries: entries(generation, epoch)})
}

func entries(changed, epoch int64) []contract.Entry {
	e := contract.Entry{Reference: contract.Reference{UID: "q"}, Changed: changed, Replicas: map[int32]int64{3: epoch}}
	if epoch == 0 {
		return nil
	}
	return []contract.Entry{e}
}

func (d *desk) writes(text string) {
	d.t.Helper()
	require.NoError(d.t, os.WriteFile(d.path(AcknowledgedFile), []byte(text), 0o600))
	d.handle(d.t.Context(), event{})
}

func (d *desk) reads() contract.Contract {
	d.t.Helper()
	text, err := os.ReadFile(d.path(ContractFile))
	require.NoError(d.t, err)
	c, err := contract.DecodeContract(text)
	require.NoError(d.t, err)
	return c
}

func (d *desk) age() time.Duration {
	d.t.Helper()
	info, err := os.Stat(d.path(ContractFile))
	require.NoError(d.t, err)
	return time.Since(info.ModTime())
}

func withDesk(t *testing.T, test func(*desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newDesk(t)) })
}

func TestFileHasTheTimeOfTheRenewal(t *testing.T) {
	t.Parallel()
	withDesk(t, func(d *desk) {
		time.Sleep(time.Minute)
		d.extend(t.Context(), d.now()-2*time.Second) // the answer took two seconds
		d.give(1, 7)
		assert.Equal(t, 2*time.Second, d.age())
		time.Sleep(5 * time.Second)
		d.give(2, 7)
		assert.Equal(t, 7*time.Second, d.age(), "a new contract is no renewal")
		d.extend(t.Context(), d.now()-time.Second)
		assert.Equal(t, time.Second, d.age())
		require.NoError(t, os.Remove(d.path(ContractFile)))
		d.extend(t.Context(), d.now())
		d.give(2, 7)
		assert.Zero(t, d.age())
	})
}

// TestDataPlaneIsNotKept: it stops by the age of its file.
func TestDataPlaneIsNotKept(t *testing.T) {
	t.Parallel()
	o := Options{Namespace: "n", Pool: "p", Pod: "w-0", PodUID: "u", OnLostLease: Keep}
	require.ErrorContains(t, RunFiles(t.Context(), &rest.Config{}, o, t.TempDir()), "OnLostLease must be Stop")
}

func TestOnlyTheAcknowledgementOfTheFileCounts(t *testing.T) {
	t.Parallel()
	withDesk(t, func(d *desk) {
		d.extend(t.Context(), d.now())
		d.give(5, 7)
		missing := map[contract.Unit]contract.Work{unit: {Epoch: 7, Failure: unanswered}}
		for _, text := range []string{"", "{", `{"generation":4}`, `{"generation":6}`, `{"generation":-5}`} {
			d.writes(text)
			assert.Equal(t, missing, d.work(), text)
		}
		d.writes(`{"generation":5,"failing":{"q":"no broker"}}`)
		assert.Equal(t, map[contract.Unit]contract.Work{unit: {Epoch: 7, Failure: "no broker"}}, d.work())
		d.writes(`{"generation":5}`)
		assert.Equal(t, map[contract.Unit]contract.Work{unit: {Epoch: 7, Working: true}}, d.work())
		d.writes(`{"generation":5,"stopping":{"q":[3]}}`)
		assert.Equal(t, map[contract.Unit]contract.Work{unit: {Epoch: stopping}}, d.work(), "its former owner has not stopped")
	})
}

func TestWhatIsNoLongerListedMayRun(t *testing.T) {
	t.Parallel()
	withDesk(t, func(d *desk) {
		d.extend(t.Context(), d.now())
		d.give(5, 7)
		d.writes(`{"generation":5}`)
		d.give(6, 0)
		d.give(7, 8)
		assert.Equal(t, map[contract.Unit]contract.Work{unit: {Epoch: 7, Working: true}}, d.work())
		ack, done := contract.Acknowledge(&contract.Contract{Incarnation: "u/1-15s", Generation: 7, Entries: entries(7, 8)}, "", d.work())
		assert.False(t, done)
		assert.Equal(t, schedule.Set{3}, ack.Stopping["q"])
		d.writes(`{"generation":7}`)
		assert.Equal(t, map[contract.Unit]contract.Work{unit: {Epoch: 8, Working: true}}, d.work())
	})
}

func TestSilentDataPlaneHasStoppedByTheAgeOfItsFile(t *testing.T) {
	t.Parallel()
	for writes, stopped := range map[string]bool{"": true, `{"generation":6,"stopping":{"q":[3]}}`: false} {
		withDesk(t, func(d *desk) {
			d.extend(t.Context(), d.now())
			d.give(5, 7)
			assert.False(t, d.idle(t.Context()))
			assert.Equal(t, contract.Contract{Incarnation: "u/1-15s", Generation: 6}, d.reads())
			d.writes(writes)
			time.Sleep(15*time.Second - time.Nanosecond)
			d.extend(t.Context(), d.now()) // the Lease is renewed until the pod leaves
			assert.False(t, d.idle(t.Context()))
			time.Sleep(time.Nanosecond)
			assert.Equal(t, stopped, d.idle(t.Context()), writes)
			d.writes(`{"generation":6}`)
			assert.True(t, d.idle(t.Context()))
		})
	}
}

// TestRestartedAgentKnowsWhatMayRun, and takes no acknowledgement of a former file for one of its.
func TestRestartedAgentKnowsWhatMayRun(t *testing.T) {
	t.Parallel()
	withDesk(t, func(d *desk) {
		d.extend(t.Context(), d.now())
		d.give(5, 7)
		d.writes(`{"generation":5}`)
		d.open(d.dir)
		assert.Equal(t, map[contract.Unit]contract.Work{unit: {Epoch: 7, Failure: unanswered}}, d.work())
		d.extend(t.Context(), d.now())
		d.give(5, 7)
		assert.EqualValues(t, 6, d.reads().Generation)
		assert.False(t, d.work()[unit].Working)
		d.idle(t.Context())
		d.open(d.dir) // before the program has read that the file lists nothing
		assert.Empty(t, d.reads().Entries)
		assert.False(t, d.idle(t.Context()))
		time.Sleep(15 * time.Second)
		assert.True(t, d.idle(t.Context()))
	})
}

func TestFileThatCannotBeWrittenIsNotTouched(t *testing.T) {
	t.Parallel()
	withDesk(t, func(d *desk) {
		d.extend(t.Context(), d.now())
		d.give(5, 7)
		blocker := filepath.Join(d.dir, temporaryFile) // a directory in place of the temporary file
		require.NoError(t, os.Mkdir(blocker, 0o700))
		d.give(6, 0)
		time.Sleep(2 * time.Second)
		d.extend(t.Context(), d.now())
		assert.Equal(t, 2*time.Second, d.age(), "it lists what the contract does not")
		require.NoError(t, os.Remove(blocker))
		d.give(6, 0)
		assert.Empty(t, d.reads().Entries)
		assert.Zero(t, d.age())
	})
}
