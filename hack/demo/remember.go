package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"nodekeeper.dev/internal/labels"
)

const (
	worker1 = "worker-1"
	worker2 = "worker-2"
	worker3 = "worker-3"
)

// recordNodes creates nodes and checks that they are recorded.
func recordNodes(ctx context.Context, s *stage) error {
	workers := []string{worker1, worker2, worker3}
	for i, own := range []map[string]string{
		{"disk": "ssd", "example.com/team": "blue", "node-role.kubernetes.io/gpu": "", "rack": "r7"},
		{"example.com/team": "red", "rack": "r8"},
		{"rack": "r9"},
	} {
		s.tell("create node " + workers[i])
		if err := s.introduce(ctx, workers[i], own); err != nil {
			return err
		}
	}
	if err := s.awaitSettled(ctx, workers...); err != nil {
		return err
	}
	h := s.see.history()
	for _, name := range workers {
		e := h.node(name)
		came, went, err := h.applied(e)
		if err != nil {
			return err
		}
		if name == worker1 { // the others look alike
			showEvents(s.out, e, came, went)
		}
		cm, err := s.checkRecord(ctx, name)
		if err != nil {
			return err
		}
		showEvents(s.out, asEvent(records, cm))
	}
	return nil
}

// loseNode edits a label of a node and deletes the node.
func loseNode(ctx context.Context, s *stage) error {
	if err := s.tellEdit(ctx, worker1, "rack=r12"); err != nil {
		return err
	}
	if err := s.awaitSettled(ctx, worker1); err != nil {
		return err
	}
	if err := s.showTransaction(s.see.history().node(worker1)); err != nil {
		return err
	}
	if err := s.tellRemove(ctx, worker1); err != nil {
		return err
	}
	if err := s.showTransaction(s.see.history().node(worker1)); err != nil {
		return err
	}
	cm, err := s.checkRecord(ctx, worker1)
	if err != nil {
		return err
	}
	showEvents(s.out, asEvent(records, cm))
	return nil
}

// tellRemove deletes a node and waits until that is recorded.
func (s *stage) tellRemove(ctx context.Context, name string) error {
	s.tell("delete node " + name)
	if err := s.remove(ctx, name); err != nil {
		return err
	}
	return s.see.until(ctx, func(h history) error {
		if h.node(name).typ != watch.Deleted {
			return fmt.Errorf("the end of node %s was not seen", name)
		}
		return h.settled(name)
	})
}

// tellEdit edits the labels of a node.
func (s *stage) tellEdit(ctx context.Context, name string, changes ...string) error {
	s.tell("label node " + name + " " + strings.Join(changes, " "))
	return s.edit(ctx, name, changes...)
}

// awaitSettled waits until the nodes are seen with their wanted labels and nothing of them is in the queue.
func (s *stage) awaitSettled(ctx context.Context, names ...string) error {
	return s.see.until(ctx, func(h history) error {
		for _, name := range names {
			e := h.node(name)
			if !e.happened() || e.typ == watch.Deleted || !maps.Equal(e.labels(), s.want[name]) {
				return fmt.Errorf("node %s was not seen with its labels", name)
			}
			if err := h.settled(name); err != nil {
				return err
			}
		}
		return nil
	})
}

// showTransaction shows an event of a node and what its transaction was.
func (s *stage) showTransaction(e event) error {
	came, went, err := s.see.history().applied(e)
	if err != nil {
		return err
	}
	showEvents(s.out, e, came, went)
	return nil
}

// checkRecord reads the record of a node and returns an error if it does not hold exactly the wanted labels.
func (s *stage) checkRecord(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	cm, err := s.readRecord(ctx, name)
	if err != nil {
		return nil, err
	}
	return cm, holds(cm, s.want[name])
}

// holds compares a record with labels. It repeats the encoding of label keys in its simplest form,
// so that the demo does not depend on the code that it checks.
func holds(cm *corev1.ConfigMap, want map[string]string) error {
	data := maps.Clone(cm.Data)
	if data[labels.Marker] == "" {
		return errors.New("record " + cm.Name + " has no version")
	}
	delete(data, labels.Marker)
	wantData := map[string]string{}
	for key, value := range want {
		wantData[strings.Replace(key, "/", "---SLASH---", 1)] = value
	}
	if !maps.Equal(data, wantData) {
		return fmt.Errorf("record %s holds %v, not %v", cm.Name, data, wantData)
	}
	return nil
}
