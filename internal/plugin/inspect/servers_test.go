package inspect_test

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/faults"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/ring/hashring"
	"nodekeeper.dev/internal/service/settings"
)

// saying returns the Lease of a replica that publishes settings.
func publishing(name, service, text string, renewed time.Duration) *coordinationv1.Lease {
	l := place(name, name, service, renewed)
	l.Annotations = map[string]string{settings.Annotation: text, settings.VersionAnnotation: "v-" + name}
	return l
}

// released returns the Lease of a replica that has ended.
func released(l *coordinationv1.Lease) *coordinationv1.Lease {
	l.Spec.HolderIdentity = new("")
	return l
}

func servers(t *testing.T, leases ...client.Object) *inspect.Servers {
	t.Helper()
	c := &inspect.Cluster{Client: faults.Fake().WithObjects(leases...).Build(), MembershipNamespace: "members"}
	s, err := c.Servers(t.Context())
	require.NoError(t, err)
	return s
}

func TestForecastGoesByTheOwnersSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
		var leases []client.Object
		var names []string
		for i := range 5 {
			name := "p-" + strconv.Itoa(i)
			names = append(names, name)
			leases = append(leases, publishing(name, "processor", `{"save-delay":"`+strconv.Itoa(i)+`s","restore-mode":"merge"}`, 0))
		}
		s, ring := servers(t, leases...), hashring.New(names...)
		owners := map[string]bool{}
		for i := range 50 {
			node := "node-" + strconv.Itoa(i)
			chosen := s.Processor(node)
			assert.Equal(t, ring.Owner(node), chosen.Name, "as the processors themselves have it")
			assert.Equal(t, ring.Owner(node), s.Owner(node))
			assert.Equal(t, []string{settings.SaveDelay}, chosen.Differing)
			assert.Equal(t, chosen.Name, "p-"+strings.TrimSuffix(chosen.Settings[settings.SaveDelay], "s"))
			owners[chosen.Name] = true
		}
		assert.Greater(t, len(owners), 2)
	})
}

func TestChosenSettingsOfAService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
		merge, other := `{"restore-mode":"merge"}`, `{"restore-mode":"replace"}`
		for name, tc := range map[string]struct {
			leases []client.Object
			want   inspect.Chosen
		}{
			"no replica": {nil, inspect.Chosen{}},
			"the one with settings": {
				[]client.Object{place("p-1", "p-1", "processor", 0), publishing("p-2", "processor", merge, 0)},
				inspect.Chosen{Name: "p-2", Settings: settings.Settings{"restore-mode": "merge"}},
			},
			"the last one's, if none is alive": {
				[]client.Object{released(publishing("p-1", "processor", other, time.Hour)), released(publishing("p-2", "processor", merge, time.Minute)), publishing("p-3", "processor", other, 2*time.Hour)},
				inspect.Chosen{Name: "p-2", Settings: settings.Settings{"restore-mode": "merge"}, Ended: true},
			},
			"none, if those that are alive say nothing": {
				[]client.Object{released(publishing("p-1", "processor", merge, time.Minute)), place("p-2", "p-2", "processor", 0)},
				inspect.Chosen{},
			},
			"not one of a dead one, however it differs": {
				[]client.Object{released(publishing("p-1", "processor", other, time.Minute)), publishing("p-2", "processor", merge, 0)},
				inspect.Chosen{Name: "p-2", Settings: settings.Settings{"restore-mode": "merge"}},
			},
			"not a watcher's": {[]client.Object{publishing("w-1", "watcher", merge, 0)}, inspect.Chosen{}},
		} {
			t.Log(name)
			func() {
				assert.Equal(t, tc.want, servers(t, tc.leases...).Processor("node-1"))
			}()
		}
	})
}

func TestUnreadableSettingsAreReportedAndDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
		bad := publishing("p-1", "processor", `{"live-labels":"`+strings.Repeat("a*", 500)+`"}`, 0)
		bad.Annotations[settings.VersionAnnotation] = "\x1b[2J"
		chosen := servers(t, bad, publishing("p-2", "processor", `{"restore-mode":"merge"}`, 0)).Processor("node-1")
		assert.Equal(t, "p-2", chosen.Name)
		require.Len(t, chosen.Unreadable, 1)
		assert.Equal(t, "p-1", chosen.Unreadable[0].Name)
		assert.LessOrEqual(t, len(chosen.Unreadable[0].SettingsProblem), 200)
		assert.Empty(t, chosen.Unreadable[0].Version)
		assert.Empty(t, servers(t, bad).Processor("node-1").Name)
	})
}

func TestStandbyWatcherPublishesItsSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
		l := publishing("w-1", "watcher", `{"record-updates":"false"}`, 0)
		l.Annotations["nodekeeper.dev/ring-standby"] = "true"
		assert.Equal(t, "w-1", servers(t, l).Watcher().Name)
		p := publishing("p-1", "processor", `{}`, 0)
		p.Annotations["nodekeeper.dev/ring-standby"] = "true"
		assert.Empty(t, servers(t, p).Owner("node-1"), "it owns nothing")
	})
}

func TestSettingsDifferAmongThoseThatAreAlive(t *testing.T) {
	a := inspect.Replica{IsAlive: true, Settings: settings.Settings{"a": "1", "b": "1"}}
	b := inspect.Replica{IsAlive: true, Settings: settings.Settings{"a": "1", "b": "2", "c": "3"}}
	dead := inspect.Replica{Settings: settings.Settings{"a": "9"}}
	assert.Equal(t, []string{"b"}, inspect.Differing([]inspect.Replica{a, b, dead}))
	assert.Empty(t, inspect.Differing([]inspect.Replica{a, dead, {IsAlive: true}}))
}

func TestWebhooksDifferFromLiveProcessorsOnly(t *testing.T) {
	replica := func(service, mode, delay string, isAlive bool) inspect.Replica {
		return inspect.Replica{Service: service, IsAlive: isAlive, Settings: settings.Settings{settings.RestoreMode: mode, settings.SaveDelay: delay}}
	}
	w := replica(inspect.WebhookService, "merge", "1s", true)
	delete(w.Settings, settings.SaveDelay)
	same, dead := replica(inspect.ProcessorService, "merge", "2s", true), replica(inspect.ProcessorService, "replace", "1s", false)
	assert.Empty(t, inspect.WebhooksDiffer([]inspect.Replica{w, same, dead, replica(inspect.WatcherService, "replace", "1s", true)}))
	other := replica(inspect.ProcessorService, "replace", "2s", true)
	assert.Equal(t, []string{settings.RestoreMode}, inspect.WebhooksDiffer([]inspect.Replica{other, w, other, same}))
	assert.Empty(t, inspect.WebhooksDiffer([]inspect.Replica{other, same}))
}
