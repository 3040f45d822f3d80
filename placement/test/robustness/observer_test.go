package robustness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/placement/ready"
	"nodekeeper.dev/placement/test/journal"
	"nodekeeper.dev/placement/test/queues"
	"nodekeeper.dev/test/sabotage"
)

// spell is the time for which one program works.
type spell struct {
	journal.Entry

	// end is when it has ended by the clock of the journal: by itself, or when that was noticed.
	end int64
	// born distinguishes its process from another one with the same id.
	born string
}

// sighting is a state of a Queue.
type sighting struct {
	at         int64
	name, uid  string
	generation int64
	wanted     int32
	// isReady: the condition Ready is True for a generation.
	isReady  bool
	readyFor int64
	isGone   bool
}

// observer follows the journal, the processes in it, and the Queues. It is safe for concurrent use.
type observer struct {
	world *world

	mu        sync.Mutex
	entries   []journal.Entry
	spells    []*spell
	running   map[string]*spell // by key: those that have not ended
	spent     map[string]bool   // whose programs were killed
	sightings []sighting
}

// key identifies a virtual replica. A resource and its successor of the same name are different.
func key(e journal.Entry) string { return fmt.Sprintf("%s %d", e.UID, e.Index) }

// followJournal follows the journal until ctx ends, and once after that.
func (o *observer) followJournal(ctx context.Context) {
	var offset int64
	for isLast := false; ; {
		if err := o.read(&offset); err != nil {
			o.world.fail("reading the journal: %v", err)
			return
		}
		o.bury()
		if isLast {
			return
		}
		isLast = !sabotage.Wait(ctx, period)
	}
}

// read reads the new lines of the journal.
func (o *observer) read(offset *int64) error {
	content, err := os.ReadFile(journal.Path(o.world.dir))
	if err != nil {
		if os.IsNotExist(err) {
			return nil
		}
		return err
	}
	content = content[*offset:]
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	*offset += int64(len(content))
	all, err := journal.Parse(bytes.NewReader(content))
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range all {
		o.addLocked(e)
	}
	return err
}

func (o *observer) addLocked(e journal.Entry) {
	o.entries = append(o.entries, e)
	last := o.running[key(e)]
	switch {
	case e.Event == journal.Start:
		if last != nil { // it is dead, because the other one has the lock
			last.end = e.NS
		}
		s := &spell{Entry: e, end: forever, born: birth(e.PID)}
		o.spells = append(o.spells, s)
		o.running[key(e)] = s
	case e.Event == journal.Stop && last != nil && last.PID == e.PID:
		last.end = e.NS
		delete(o.running, key(e))
	}
}

// bury notices processes that have ended without an entry in the journal.
func (o *observer) bury() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k, s := range o.running {
		if born := birth(s.PID); born == "" || born != s.born {
			s.end = now()
			delete(o.running, k)
		}
	}
}

// birth returns when a process was started, or nothing if it has ended.
func birth(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// State and start time are the first and the 20th field after the name in parentheses.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const state, start = 0, 19
	if len(fields) <= start || fields[state] == "Z" || fields[state] == "X" {
		return ""
	}
	return fields[start]
}

// spared returns the programs that run, and were not killed before.
func (o *observer) spared() (all []journal.Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k, s := range o.running {
		if !o.spent[k] {
			all = append(all, s.Entry)
		}
	}
	return all
}

// spend records that a program was killed.
func (o *observer) spend(e journal.Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spent[key(e)] = true
}

// owners returns the pods by the indexes of a Queue that programs work on.
func (o *observer) owners(uid string) map[int32]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := map[int32]string{}
	for _, s := range o.running {
		if s.UID == uid {
			all[s.Index] = s.Pod
		}
	}
	return all
}

// followQueues follows the Queues until ctx ends.
func (o *observer) followQueues(ctx context.Context) {
	for ctx.Err() == nil {
		_ = o.watch(ctx) // a server is stopped
		sabotage.Wait(ctx, period)
	}
}

// watch lists the Queues, and then watches them.
func (o *observer) watch(ctx context.Context) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(queues.Kind)
	listing, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := o.world.client.List(listing, list, client.InNamespace(namespace)); err != nil {
		return err
	}
	listed := map[string]bool{}
	for i := range list.Items {
		listed[string(list.Items[i].GetUID())] = true
		o.see(&list.Items[i], false)
	}
	o.missOthers(listed)
	w, err := o.world.client.Watch(ctx, list, client.InNamespace(namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if q, ok := e.Object.(*unstructured.Unstructured); ok && e.Type != watch.Error {
			o.see(q, e.Type == watch.Deleted)
		}
	}
	return nil
}

// see records a state of a Queue.
func (o *observer) see(q *unstructured.Unstructured, isGone bool) {
	s := sighting{at: now(), name: q.GetName(), uid: string(q.GetUID()), generation: q.GetGeneration(), isGone: isGone}
	wanted, _, _ := unstructured.NestedInt64(q.Object, "spec", "partitions")
	s.wanted = int32(wanted)
	if c := condition(q, ready.Ready); c != nil {
		s.isReady = c["status"] == string(metav1.ConditionTrue)
		s.readyFor, _, _ = unstructured.NestedInt64(c, "observedGeneration")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sightings = append(o.sightings, s)
}

// missOthers records that Queues are gone that a list does not have.
func (o *observer) missOthers(listed map[string]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	latest := map[string]sighting{}
	for _, s := range o.sightings {
		latest[s.uid] = s
	}
	for uid, s := range latest {
		if !listed[uid] && !s.isGone {
			s.at, s.isGone = now(), true
			o.sightings = append(o.sightings, s)
		}
	}
}

// condition returns a condition of a Queue, or nil.
func condition(q *unstructured.Unstructured, kind string) map[string]any {
	all, _, _ := unstructured.NestedSlice(q.Object, "status", "conditions")
	for _, one := range all {
		if c, ok := one.(map[string]any); ok && c["type"] == kind {
			return c
		}
	}
	return nil
}
