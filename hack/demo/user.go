package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
)

// The namespaces that nodekeeper's programs use by default.
const (
	transactionNamespace = "node-metadata-transactions"
	metadataNamespace    = "node-metadata"
)

// user labels, deletes and re-creates nodes, and knows what the cluster must look like then.
type user struct {
	api client.Client
	// want has the labels that the user last gave each node.
	want map[string]map[string]string
}

// introduce creates a node that is new to the cluster, with labels beyond those of its kubelet.
func (u *user) introduce(ctx context.Context, name string, own map[string]string) error {
	all := bare(name)
	maps.Copy(all, own)
	u.want[name] = all
	return u.create(ctx, name, all)
}

// bringBack creates a node again, as its kubelet does: without the labels that a user gave it.
func (u *user) bringBack(ctx context.Context, name string) error {
	return u.create(ctx, name, bare(name))
}

// bare are the labels that a kubelet gives its own node.
func bare(name string) map[string]string {
	return map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
}

func (u *user) create(ctx context.Context, name string, own map[string]string) error {
	if err := u.api.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: own}}); err != nil {
		return fmt.Errorf("creating node %s: %w", name, err)
	}
	return nil
}

func (u *user) remove(ctx context.Context, name string) error {
	if err := u.api.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return fmt.Errorf("deleting node %s: %w", name, err)
	}
	return nil
}

// edit changes labels, in the words of kubectl label: "key=value" sets one, "key-" removes one.
func (u *user) edit(ctx context.Context, name string, changes ...string) error {
	patch := map[string]any{}
	for _, change := range changes {
		if key, value, ok := strings.Cut(change, "="); ok {
			patch[key], u.want[name][key] = value, value
			continue
		}
		key := strings.TrimSuffix(change, "-")
		patch[key] = nil
		delete(u.want[name], key)
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": patch}})
	if err != nil {
		return err
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := u.api.Patch(ctx, n, client.RawPatch(types.MergePatchType, body)); err != nil {
		return fmt.Errorf("labelling node %s: %w", name, err)
	}
	return nil
}

// isSettled returns an error unless these nodes and their records have exactly the wanted labels, by
// live reads, and the queue is empty. The marker of nodes that have returned is the revision of their
// records.
func (u *user) isSettled(ctx context.Context, returned bool, names ...string) error {
	for _, name := range names {
		var n corev1.Node
		var record corev1.ConfigMap
		if err := u.api.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			return err
		}
		if err := u.api.Get(ctx, client.ObjectKey{Namespace: metadataNamespace, Name: name}, &record); err != nil {
			return err
		}
		if err := holds(&record, u.want[name]); err != nil {
			return err
		}
		own, marker := labels.Split(n.Labels)
		if !maps.Equal(own, u.want[name]) {
			return fmt.Errorf("node %s has the labels %v, not %v", name, own, u.want[name])
		}
		if revision := record.Data[labels.Marker]; returned && marker != revision {
			return fmt.Errorf("the marker of node %s is %q, but its record has revision %q", name, marker, revision)
		}
	}
	return u.isQueueEmpty(ctx)
}

func (u *user) isQueueEmpty(ctx context.Context) error {
	var queue corev1.ConfigMapList
	if err := u.api.List(ctx, &queue, client.InNamespace(transactionNamespace)); err != nil {
		return err
	}
	if len(queue.Items) > 0 {
		return fmt.Errorf("%d transactions are in the queue", len(queue.Items))
	}
	return nil
}

// holds compares a record with labels. It repeats the encoding of label keys in its simplest form,
// so that the demo does not depend on the code that it checks.
func holds(record *corev1.ConfigMap, want map[string]string) error {
	wantData := map[string]string{}
	for key, value := range want {
		wantData[strings.Replace(key, "/", "---SLASH---", 1)] = value
	}
	data := maps.Clone(record.Data)
	delete(data, labels.Marker)
	if record.Data[labels.Marker] == "" || !maps.Equal(data, wantData) {
		return fmt.Errorf("record %s holds %v, not a revision and %v", record.Name, record.Data, wantData)
	}
	return nil
}
