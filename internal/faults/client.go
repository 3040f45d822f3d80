package faults

import (
	"context"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Verb is the verb of a call.
type Verb string

// The verbs of a client.
const (
	Get    Verb = "get"
	List   Verb = "list"
	Create Verb = "create"
	Update Verb = "update"
	Patch  Verb = "patch"
	Delete Verb = "delete"
)

// Call is one call of a client.
type Call struct {
	Verb Verb
	// Kind is the kind of the object; for a list, the kind of its items.
	Kind string
	// Namespace and Name identify the object. A list has the name that its field selector requires,
	// or none.
	Namespace, Name string
}

// Fault makes calls fail or changes when they happen.
type Fault interface {
	// Do handles a call. Next passes the call on to the API server.
	Do(ctx context.Context, call Call, next func(context.Context) error) error
}

// Client returns a client whose calls pass through the faults, in order. It rejects calls whose ctx
// has ended, like a real client and unlike the fake one.
func Client(c client.WithWatch, faults ...Fault) client.WithWatch {
	i := injector{client: c, faults: faults}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return i.do(ctx, i.call(Get, obj, key), func(ctx context.Context) error { return c.Get(ctx, key, obj, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return i.do(ctx, i.call(List, list, listed(opts)), func(ctx context.Context) error { return c.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return i.do(ctx, i.call(Create, obj, client.ObjectKeyFromObject(obj)), func(ctx context.Context) error { return c.Create(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return i.do(ctx, i.call(Update, obj, client.ObjectKeyFromObject(obj)), func(ctx context.Context) error { return c.Update(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return i.do(ctx, i.call(Patch, obj, client.ObjectKeyFromObject(obj)), func(ctx context.Context) error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return i.do(ctx, i.call(Delete, obj, client.ObjectKeyFromObject(obj)), func(ctx context.Context) error { return c.Delete(ctx, obj, opts...) })
		},
	})
}

// listed returns the namespace of a list, and the name if it selects one object.
func listed(opts []client.ListOption) client.ObjectKey {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	key := client.ObjectKey{Namespace: o.Namespace}
	if o.FieldSelector != nil {
		key.Name, _ = o.FieldSelector.RequiresExactMatch(metav1.ObjectNameField)
	}
	return key
}

// injector passes the calls of a client through the faults.
type injector struct {
	client client.Client
	faults []Fault
}

func (i injector) do(ctx context.Context, call Call, last func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	next := last
	for _, fault := range slices.Backward(i.faults) {
		after := next
		next = func(ctx context.Context) error { return fault.Do(ctx, call, after) }
	}
	return next(ctx)
}

func (i injector) call(verb Verb, obj runtime.Object, key client.ObjectKey) Call {
	call := Call{Verb: verb, Namespace: key.Namespace, Name: key.Name}
	if gvk, err := i.client.GroupVersionKindFor(obj); err == nil { // an unknown kind matches no fault; the client returns the error
		call.Kind = strings.TrimSuffix(gvk.Kind, "List")
	}
	return call
}

// Calls selects the calls that a fault hits: calls that match all fields that are set. The zero
// value selects every call.
type Calls struct {
	Verb            Verb
	Kind            string
	Namespace, Name string
	// Skip is the number of matching calls to let pass first.
	Skip int
	// Times is the number of calls to hit after that. Zero means all, until [Calls.End].
	Times int

	mu    sync.Mutex
	seen  int
	ended bool
}

// Hits returns how many calls the fault has hit.
func (c *Calls) Hits() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	hits := max(c.seen-c.Skip, 0)
	if c.Times > 0 {
		hits = min(hits, c.Times)
	}
	return hits
}

// End ends the fault.
func (c *Calls) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}

// hit reports whether the fault hits a call, and counts the matching calls.
func (c *Calls) hit(call Call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	matches := (c.Verb == "" || c.Verb == call.Verb) && (c.Kind == "" || c.Kind == call.Kind) &&
		(c.Namespace == "" || c.Namespace == call.Namespace) && (c.Name == "" || c.Name == call.Name)
	if !matches || c.ended {
		return false
	}
	c.seen++
	return c.seen > c.Skip && (c.Times == 0 || c.seen <= c.Skip+c.Times)
}
