package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"nodekeeper.dev/placement/contract"
)

// kindState is a kind with what the loop knows of it.
type kindState struct {
	Kind

	client dynamic.ResourceInterface
	store  *store[*resource]
	// lacks holds the fields of a status that a kind with annotations does not store. It belongs to
	// the loop.
	lacks map[string]bool
	// pruned is set when the API server does not store what the loop has written. The loop writes
	// nothing more to this kind then. It belongs to the loop.
	pruned bool
}

// served holds the kinds that were found.
type served struct {
	mu     sync.Mutex
	looked int // kinds that were looked for
	found  []*kindState
}

// serve waits until a kind can be used, and then fills its store until ctx ends. Without it, the
// pool goes on with its other kinds.
func (l *loop) serve(ctx context.Context, k Kind) {
	log := logr.FromContextOrDiscard(ctx).WithValues("kind", k.Kind, "apiVersion", k.GroupVersion().String())
	reason, delay := "", retryPeriod
	for {
		state, err := l.lookUp(k)
		l.served.mu.Lock()
		if reason == "" {
			l.served.looked++
		}
		if err == nil {
			l.served.found = append(l.served.found, state)
		}
		l.served.mu.Unlock()
		l.dirty.Send()
		if err == nil {
			expected := &unstructured.Unstructured{}
			expected.SetGroupVersionKind(k.GroupVersionKind)
			l.reflector(expected, state.store, metav1.ListOptions{}, listOf(state.client.List), state.client.Watch).RunWithContext(ctx)
			return
		}
		if reason != err.Error() {
			reason = err.Error()
			log.Info("A kind of the pool cannot be used: its resources stay as they are", "reason", reason)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
		delay = min(2*delay, maxRetryPeriod)
	}
}

// lookUp looks for a kind in the API server.
func (l *loop) lookUp(k Kind) (*kindState, error) {
	gv := k.GroupVersion()
	list, err := l.discovery.ServerResourcesForGroupVersion(gv.String())
	if err != nil {
		return nil, fmt.Errorf("looking for %s: %w", gv, err)
	}
	for _, r := range list.APIResources {
		if r.Kind != k.Kind || !r.Namespaced || strings.Contains(r.Name, "/") {
			continue
		}
		if !hasStatus(list.APIResources, r.Name) {
			// Each write of the status would be a new generation.
			return nil, fmt.Errorf("%s in %s has no status subresource: add subresources: {status: {}} to this version in its CustomResourceDefinition", k.Kind, gv)
		}
		state := &kindState{Kind: k, lacks: map[string]bool{}, client: l.dynamic.Resource(gv.WithResource(r.Name)).Namespace(l.Namespace)}
		state.store = newStore(l, parser(state, l.MaxReplicas), nil)
		return state, nil
	}
	return nil, fmt.Errorf("the API server has no namespaced kind %s in %s: install its CustomResourceDefinition, or correct the file of the pools", k.Kind, gv)
}

// hasStatus reports whether the status of a resource has an endpoint of its own.
func hasStatus(all []metav1.APIResource, name string) bool {
	return slices.ContainsFunc(all, func(r metav1.APIResource) bool { return r.Name == name+"/status" })
}

// useKinds makes passes use the kinds that are synced, and reports whether all kinds were looked
// for, and those that were found are synced.
func (l *loop) useKinds() (all bool) {
	l.served.mu.Lock()
	defer l.served.mu.Unlock()
	all = l.served.looked == len(l.Kinds)
	for _, k := range l.served.found {
		switch {
		case slices.Contains(l.kinds, k):
		case k.store.synced():
			l.kinds = append(l.kinds, k)
		default:
			all = false
		}
	}
	return all
}

// kindOf returns the kind of an entry of a contract, or nil if the pool does not have it.
func (l *loop) kindOf(r *contract.Reference) *kindState {
	gv, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil {
		return nil
	}
	for _, k := range l.kinds {
		if k.GroupKind() == gv.WithKind(r.Kind).GroupKind() {
			return k
		}
	}
	return nil
}
