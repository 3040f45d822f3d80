package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bare are the labels that a kubelet gives its own node.
func bare(name string) map[string]string {
	return map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
}

// introduce creates a node that is new to the cluster, with labels beyond those of its kubelet.
func (s *stage) introduce(ctx context.Context, name string, own map[string]string) error {
	all := bare(name)
	maps.Copy(all, own)
	s.want[name] = all
	_, err := s.create(ctx, name, all)
	return err
}

// bringBack creates a node again, as its kubelet does: without the labels that a user gave it.
func (s *stage) bringBack(ctx context.Context, name string) (*corev1.Node, error) {
	return s.create(ctx, name, bare(name))
}

func (s *stage) create(ctx context.Context, name string, own map[string]string) (*corev1.Node, error) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: own}}
	if err := s.api.Create(ctx, n); err != nil {
		return nil, fmt.Errorf("creating node %s: %w", name, err)
	}
	return n, nil
}

func (s *stage) remove(ctx context.Context, name string) error {
	if err := s.api.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return fmt.Errorf("deleting node %s: %w", name, err)
	}
	return nil
}

// edit changes labels, in the words of kubectl label: "key=value" sets one, "key-" removes one.
func (s *stage) edit(ctx context.Context, name string, changes ...string) error {
	patch := map[string]any{}
	want := maps.Clone(s.want[name])
	for _, change := range changes {
		if key, value, ok := strings.Cut(change, "="); ok {
			patch[key], want[key] = value, value
			continue
		}
		key := strings.TrimSuffix(change, "-")
		patch[key] = nil
		delete(want, key)
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": patch}})
	if err != nil {
		return fmt.Errorf("labelling node %s: %w", name, err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := s.api.Patch(ctx, n, client.RawPatch(types.MergePatchType, body)); err != nil {
		return fmt.Errorf("labelling node %s: %w", name, err)
	}
	s.want[name] = want
	return nil
}

// tell prints what the user is about to do.
func (s *stage) tell(text string) { s.out.Say(time.Now(), "user", text) }

// readRecord reads the record of a node from the API server.
func (s *stage) readRecord(ctx context.Context, node string) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{}
	if err := s.api.Get(ctx, types.NamespacedName{Namespace: metadataNamespace, Name: node}, cm); err != nil {
		return nil, fmt.Errorf("reading the record of node %s: %w", node, err)
	}
	return cm, nil
}
