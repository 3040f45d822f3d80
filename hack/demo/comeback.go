package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/story"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/txn"
)

// returnNode re-creates the node that the step before deleted.
func returnNode(ctx context.Context, s *stage) error {
	return s.tellReturn(ctx, worker1)
}

// keepEdits changes, adds and removes labels, and checks that the edits survive the next return.
func keepEdits(ctx context.Context, s *stage) error {
	if err := s.tellEdit(ctx, worker1, "example.com/team=green", "example.com/owner=ops", "disk-"); err != nil {
		return err
	}
	if err := s.awaitSettled(ctx, worker1); err != nil {
		return err
	}
	showEvents(s.out, s.see.history().node(worker1))
	if err := s.tellRemove(ctx, worker1); err != nil {
		return err
	}
	return s.tellReturn(ctx, worker1)
}

// tellReturn brings a node back and shows how it gets its labels.
func (s *stage) tellReturn(ctx context.Context, name string) error {
	s.tell("create node " + name + ", as its kubelet does")
	n, err := s.bringBack(ctx, name)
	if err != nil {
		return err
	}
	if err := s.awaitRestored(ctx, n); err != nil {
		return err
	}
	h := s.see.history()
	l := h.lives()[n.UID]
	came, _, err := h.applied(l.added)
	if err != nil {
		return err
	}
	showEvents(s.out, l.added, came, l.restored)
	s.out.Say(l.restored.at, "", fmt.Sprintf("the labels came %s after the node", story.InMillis(l.latency())))
	return s.checkRestored(ctx, name)
}

// awaitRestored waits until nodes that came back have their labels, and nothing of them is in the queue.
func (s *stage) awaitRestored(ctx context.Context, returned ...*corev1.Node) error {
	return s.see.until(ctx, func(h history) error {
		lives := h.lives()
		for _, n := range returned {
			if err := lives[n.UID].restoredAs(n.Name, s.want[n.Name]); err != nil {
				return err
			}
		}
		for _, n := range returned {
			if err := h.settled(n.Name); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkRestored reads a node and its record, and compares labels and marker.
func (s *stage) checkRestored(ctx context.Context, name string) error {
	var n corev1.Node
	if err := s.api.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
		return fmt.Errorf("reading node %s: %w", name, err)
	}
	cm, err := s.checkRecord(ctx, name)
	if err != nil {
		return err
	}
	own, marker := labels.Split(n.Labels)
	if !maps.Equal(own, s.want[name]) {
		return fmt.Errorf("node %s has the labels %v, not %v", name, own, s.want[name])
	}
	if version := cm.Data[labels.Marker]; marker != version {
		return fmt.Errorf("the marker of node %s is %q, but its record has version %q", name, marker, version)
	}
	return nil
}

// flap deletes and re-creates a node twice without waiting for anything.
func flap(ctx context.Context, s *stage) error {
	before := len(s.see.history())
	s.tell("delete, create, delete and create node " + worker2)
	start := time.Now()
	var n *corev1.Node
	for range 2 {
		if err := s.remove(ctx, worker2); err != nil {
			return err
		}
		var err error
		if n, err = s.bringBack(ctx, worker2); err != nil {
			return err
		}
	}
	took := time.Since(start)
	if err := s.awaitRestored(ctx, n); err != nil {
		return err
	}

	var events []event
	var types []string
	h := s.see.history()
	for _, e := range h[before:].recorded(worker2) {
		events = append(events, e)
		if came, _, err := h.applied(e); err == nil { // else the next one took its place, or it would not be settled
			types = append(types, came.obj.GetLabels()[txn.TypeLabel])
		}
	}
	showEvents(s.out, events...)
	s.out.Say(time.Now(), "", fmt.Sprintf("the four requests took %s; %d transactions came and went:", story.InMillis(took), len(types)),
		strings.Join(types, ", "))
	return s.checkRestored(ctx, worker2)
}
