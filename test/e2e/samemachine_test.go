package e2e_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/internal/txn"
)

const excluded = "node.kubernetes.io/exclude-from-external-load-balancers"

// TestLabelsOfAMachineStayWithIt covers labels that tools set while they drain or equip a machine:
// its replacement was out of all load balancers, and got pods for a runtime that it did not have.
//
//nolint:tparallel // its parts share the programs, one after the other
func TestLabelsOfAMachineStayWithIt(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher()
	e.processor()
	for part, do := range map[string]func(name string){
		"drained and replaced": func(name string) {
			first := e.equip(name, labelSet{"rack": "r1"})
			e.editAs("kops", name, labelSet{excluded: ""})
			e.saved(name, labelSet{"rack": "r1", excluded: ""})
			e.replace(first)
			second := e.register(name, "gce://p/z/b", "b")
			e.restored(name, labelSet{"rack": "r1"})
			e.informed(second.UID, "MachineLabelsWithheld", excluded)
			assert.Empty(e.t, e.warning(e.t, second.UID, "RestrictedLabelsWithheld"), "it is as expected")
			e.replace(second)
			e.register(name, "gce://p/z/a", "a")
			e.restored(name, labelSet{"rack": "r1", excluded: ""})
		},
		"excluded by a person": func(name string) {
			first := e.equip(name, labelSet{"rack": "r1", excluded: ""})
			e.replace(first)
			e.register(name, "gce://p/z/a", "a")
			e.restored(name, labelSet{"rack": "r1", excluded: ""})
		},
		"equipped": func(name string) {
			state := labelSet{"katacontainers.io/kata-runtime": "true", "plan.upgrade.cattle.io/k3s": "0a1b", "aws-node-termination-handler/action": "UncordonAfterReboot"}
			first := e.equip(name, labelSet{"rack": "r1"})
			e.editAs("installer", name, state)
			e.saved(name, union(labelSet{"rack": "r1"}, state))
			e.replace(first)
			e.register(name, "gce://p/z/b", "b")
			e.restored(name, labelSet{"rack": "r1"})
		},
		"in progress": func(name string) {
			first := e.equip(name, labelSet{"rack": "r1"})
			e.editAs("manager", name, labelSet{
				"network.nvidia.com/operator.mofed.wait": "false", "nvidia.com/ofed-driver-upgrade-state": "drain-required",
				"example.com/reboot-pending": "true", "lifecycle-status": "draining", "rack": "r2",
			})
			e.saved(name, labelSet{"rack": "r2"})
			e.replace(first)
			e.register(name, "gce://p/z/a", "a")
			e.restored(name, labelSet{"rack": "r2"})
		},
	} {
		t.Run(part, func(t *testing.T) {
			e.t = t
			do(e.name(txn.NodeHash(part)[:8]))
		})
	}
	e.t = t
}

// TestEveryLabelMayStayWithItsMachine is the setting for clouds that give the name of a machine to
// another one within minutes.
func TestEveryLabelMayStayWithItsMachine(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.watcher("--same-machine-labels=*")
	e.processor("--same-machine-labels=*")
	name := e.name("reused")
	first := e.equip(name, labelSet{"rack": "r1", "team": "blue"})
	e.replace(first)
	second := e.register(name, "gce://p/z/b", "b")
	e.restored(name, labelSet{})
	e.set(name, "pool", "p2")
	e.saved(name, labelSet{"pool": "p2"})
	e.replace(second)
	e.register(name, "gce://p/z/a", "a")
	e.restored(name, labelSet{"rack": "r1", "team": "blue"})
}

// informed waits for a Normal event on an object that names a label.
func (e *env) informed(uid types.UID, reason, key string) {
	e.t.Helper()
	e.eventually(func(c *assert.CollectT) {
		var list eventsv1.EventList
		require.NoError(c, e.client.List(e.t.Context(), &list))
		assert.True(c, slices.ContainsFunc(list.Items, func(event eventsv1.Event) bool {
			return event.Regarding.UID == uid && event.Reason == reason && event.Type == corev1.EventTypeNormal && strings.Contains(event.Note, key)
		}))
	}, "there is a Normal event %s on the object with uid %s", reason, uid)
}

// equip registers a machine that a person labels.
func (e *env) equip(name string, own labelSet) *corev1.Node {
	e.t.Helper()
	n := e.register(name, "gce://p/z/a", "a")
	e.editAs("kubectl-label", name, own)
	e.saved(name, own)
	return n
}

// replace deletes the Node of a machine.
func (e *env) replace(n *corev1.Node) {
	e.t.Helper()
	e.delete(n.Name)
	e.recorded(n.UID, txn.Deleted)
}
