package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// patch applies a merge patch to the metadata of a Secret, as a shard.
func (b *bench) patch(ctx context.Context, name, patch string) error {
	_, err := b.shards.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// acknowledge releases at once every object that a shard is asked to release, until the returned
// function is called.
func (b *bench) acknowledge(ctx context.Context, shard string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	ended.Go(func() {
		for ctx.Err() == nil {
			w, err := b.objects.Watch(ctx, metav1.ListOptions{LabelSelector: prefix.ShardLabel(ringName) + "=" + shard + "," + prefix.DrainLabel(ringName), AllowWatchBookmarks: true})
			if err != nil {
				continue
			}
			b.releaseAll(ctx, w)
			w.Stop()
		}
	})
	return func() {
		cancel()
		ended.Wait()
	}
}

// releaseAll releases the objects that appear in a watch.
func (b *bench) releaseAll(ctx context.Context, w watch.Interface) {
	limit := make(chan struct{}, b.concurrency)
	for e := range w.ResultChan() {
		m, ok := e.Object.(*metav1.PartialObjectMetadata)
		if !ok || e.Type != watch.Added {
			continue
		}
		limit <- struct{}{}
		go func() {
			defer func() { <-limit }()
			_ = b.patch(ctx, m.Name, b.acknowledgement(m)) // the sharder waits for it, and the figures show that
		}()
	}
}

// acknowledgement returns the patch with which a shard releases an object: either like the library
// or like a shard without support for direct hand-overs.
func (b *bench) acknowledgement(m *metav1.PartialObjectMetadata) string {
	shard, drain := prefix.ShardLabel(ringName), prefix.DrainLabel(ringName)
	labels := fmt.Sprintf(`{%q:null}`, shard)
	if b.direct && b.children == 0 {
		labels = fmt.Sprintf(`{%q:%q,%q:null}`, shard, m.Labels[drain], drain)
	}
	return fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q,"labels":%s}}`, m.UID, m.ResourceVersion, labels)
}

// untilAt waits until no object is in a hand-over and a shard has its share, or no objects.
func (b *bench) untilAt(ctx context.Context, shard string, hasShare bool) error {
	least := 0
	if hasShare {
		ring := &v1alpha1.ClusterRing{}
		err := b.until(ctx, func(s *v1alpha1.ClusterRingStatus) bool {
			ring.Status = *s
			return slices.Contains(s.Table.Shards, shard)
		})
		if err != nil {
			return err
		}
		least = b.settings.objects / len(ring.Status.Table.Shards) * 9 / 10 // the shares of objects vary more than the shares of slots
	}
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		n := b.tally.count(shard)
		return b.tally.draining() == 0 && (hasShare && n >= least || !hasShare && n == 0), nil
	})
}

// requests returns the number of answered requests of each kind, excluding watches and the API
// server's own requests.
func (b *bench) requests(ctx context.Context) (map[string]float64, error) {
	d, err := discovery.NewDiscoveryClientForConfig(b.plane.Config)
	if err != nil {
		return nil, err
	}
	text, err := d.RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	all := map[string]float64{}
	for _, m := range families["apiserver_request_total"].GetMetric() {
		resource, verb := label(m, "resource"), label(m, "verb")
		if slices.Contains([]string{"secrets", "configmaps", "leases", "clusterrings", "events", "namespaces", "customresourcedefinitions", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}, resource) && verb != "WATCH" {
			all[fmt.Sprintf("%s %s", verb, resource)] += m.GetCounter().GetValue()
		}
	}
	return all, nil
}

// writes returns the number of patches of Secrets and ConfigMaps.
func writes(all map[string]float64) float64 { return all["PATCH secrets"] + all["PATCH configmaps"] }

func kinds(all map[string]float64) []string { return slices.Sorted(maps.Keys(all)) }

func label(m *dto.Metric, name string) string {
	for _, pair := range m.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
