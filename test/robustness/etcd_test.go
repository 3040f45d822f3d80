package robustness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/record"
	"nodekeeper.dev/internal/txn"
)

// storage reads the objects that the API server stores in etcd.
type storage struct {
	etcd *clientv3.Client
	// transactions and metadata are the namespaces.
	transactions, metadata string
}

const (
	registry = "/registry/"
	// processorManager is the name of a processor in managedFields: the part of its user agent before
	// the slash.
	processorManager = "nodekeeper-processor"
)

// revision returns the latest revision.
func (s *storage) revision(ctx context.Context) (uint64, error) {
	got, err := s.etcd.Get(ctx, registry, clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("asking etcd for its revision: %w", err)
	}
	return uint64(got.Header.Revision), nil
}

// history calls handle with every write of a Node, a record and a transaction up to a revision, in
// order. Nothing may have been compacted.
func (s *storage) history(ctx context.Context, upTo uint64, handle func(event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opts := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithPrevKV(), clientv3.WithFragment()}
	for answer := range s.etcd.Watch(ctx, "", opts...) { // all keys, so that the last revision is included
		if err := answer.Err(); err != nil {
			return fmt.Errorf("reading the history: %w", err)
		}
		for _, change := range answer.Events {
			if uint64(change.Kv.ModRevision) > upTo {
				return nil
			}
			e, relevant, err := s.event(change)
			if err != nil {
				return fmt.Errorf("reading revision %d of %s: %w", change.Kv.ModRevision, change.Kv.Key, err)
			}
			if relevant {
				handle(e)
			}
			if uint64(change.Kv.ModRevision) == upTo {
				return nil
			}
		}
	}
	return errors.New("reading the history: it ended early")
}

// event converts a change in etcd. relevant is false if no promise concerns it.
func (s *storage) event(change *clientv3.Event) (e event, relevant bool, err error) {
	resource, rest, _ := strings.Cut(strings.TrimPrefix(string(change.Kv.Key), registry), "/")
	revision := uint64(change.Kv.ModRevision)
	namespace, _, _ := strings.Cut(rest, "/")
	switch {
	case resource == "minions":
		e, err = nodeEvent(change)
	case resource == "configmaps" && namespace == s.metadata:
		e, err = recordEvent(change)
	case resource == "configmaps" && namespace == s.transactions:
		e, err = transactionEvent(change)
	default:
		return event{}, false, nil
	}
	e.revision = revision
	return e, err == nil, err
}

func nodeEvent(change *clientv3.Event) (event, error) {
	after, before := &corev1.Node{}, &corev1.Node{}
	if err := decodeChange(change, after, before); err != nil {
		return event{}, err
	}
	isDeleted := change.Type == clientv3.EventTypeDelete
	if isDeleted {
		after = before
	}
	own, marker := labels.Split(after.Labels)
	requested, err := requestedLabels(after)
	return event{name: after.Name, node: &nodeWrite{
		requested: requested, isGated: slices.ContainsFunc(after.Spec.Taints, nodeview.IsStartupTaint),
		uid: after.UID, labels: own, marker: marker, isDeleted: isDeleted, isEnding: after.DeletionTimestamp != nil,
		// If the time is earlier or missing, a user has taken over the last field of the processor.
		isService: !isDeleted && writtenAt(after) > writtenAt(before),
	}}, err
}

// requestedLabels returns the initial labels of a Node in the request, or nil if the webhook has
// not set the marker.
func requestedLabels(n *corev1.Node) (labelSet, error) {
	isAdmitted := slices.ContainsFunc(n.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == agents.Webhook && strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+labels.Marker+`"`)
	})
	text, isTold := n.Annotations[requestedAnnotation]
	if !isAdmitted || !isTold {
		return nil, nil
	}
	requested := labelSet{}
	if err := json.Unmarshal([]byte(text), &requested); err != nil {
		return nil, fmt.Errorf("reading annotation %s: %w", requestedAnnotation, err)
	}
	own, _ := labels.Split(requested)
	return own, nil
}

// writtenAt returns when a processor last wrote an object, or "" if it never did.
func writtenAt(obj metav1.Object) string {
	latest := ""
	for _, entry := range obj.GetManagedFields() {
		if entry.Manager == processorManager && entry.Time != nil {
			latest = max(latest, entry.Time.UTC().Format("20060102150405"))
		}
	}
	return latest
}

func recordEvent(change *clientv3.Event) (event, error) {
	after, before := &corev1.ConfigMap{}, &corev1.ConfigMap{}
	if err := decodeChange(change, after, before); err != nil {
		return event{}, err
	}
	if change.Type == clientv3.EventTypeDelete {
		return event{name: before.Name, record: &recordWrite{}}, nil
	}
	r, err := record.Parse(after)
	return event{name: after.Name, record: &recordWrite{now: r}}, err
}

func transactionEvent(change *clientv3.Event) (event, error) {
	after, before := &corev1.ConfigMap{}, &corev1.ConfigMap{}
	if err := decodeChange(change, after, before); err != nil {
		return event{}, err
	}
	isRemoved := change.Type == clientv3.EventTypeDelete
	if isRemoved {
		after = before
	}
	t, err := txn.Parse(after)
	return event{name: t.Node, transaction: &transactionWrite{Transaction: t, isRemoved: isRemoved}}, err
}

// decodeChange decodes the states after and before a change. A missing state stays empty.
func decodeChange(change *clientv3.Event, after, before client.Object) error {
	if change.Type != clientv3.EventTypeDelete {
		if err := decode(change.Kv, after); err != nil {
			return err
		}
	}
	if change.PrevKv == nil {
		return nil
	}
	return decode(change.PrevKv, before)
}

// decode decodes a stored object. Its resourceVersion is not stored with it, but is the revision.
func decode(kv *mvccpb.KeyValue, obj client.Object) error {
	if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), kv.Value, obj); err != nil {
		return err
	}
	obj.SetResourceVersion(strconv.FormatInt(kv.ModRevision, 10))
	return nil
}
