// Package owners keeps the field managers that own the labels of a Node, so that a restore can give
// the labels back to them. Otherwise they would belong to nodekeeper from then on, and a tool that
// applies labels could never remove one again. The package is pure.
package owners

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/labels"
)

// Processor and Webhook are the field managers of restores. They own the marker for good.
const (
	Processor = "nodekeeper-processor"
	Webhook   = "nodekeeper-webhook"
)

// IsNodekeeper reports whether a field manager is that of restores.
func IsNodekeeper(manager string) bool { return manager == Processor || manager == Webhook }

// maxLength bounds the length in bytes of [Owners], which are an annotation. All annotations of an
// object share 256 KiB, see [labels.MaxKeysBytes].
const maxLength = 16 << 10

// ErrUnreadable means that owners or managed fields cannot be read.
var ErrUnreadable = errors.New("unreadable")

// Owner is a field manager, its operation, and the labels that it owns, including annotations and
// taints.
type Owner struct {
	Manager   string                            `json:"manager"`
	Operation metav1.ManagedFieldsOperationType `json:"operation"`
	Keys      labels.Keys                       `json:"keys"`
}

// Owners are the owners of the labels of one Node in canonical JSON, so that equal ones are equal
// strings. No owner is known of a label that is not mentioned. The zero value mentions none.
type Owners string

// Of returns owners in canonical form. It returns none if they would be too large.
func Of(list []Owner) Owners {
	list = slices.DeleteFunc(slices.Clone(list), func(o Owner) bool { return o.Keys == "" })
	if len(list) == 0 {
		return ""
	}
	slices.SortFunc(list, func(a, b Owner) int {
		return cmp.Or(cmp.Compare(a.Manager, b.Manager), cmp.Compare(a.Operation, b.Operation))
	})
	text, err := json.Marshal(list)
	if err != nil || len(text) > maxLength {
		return ""
	}
	return Owners(unique.Make(string(text)).Value()) // most Nodes have the same
}

// List returns the owners.
func (o Owners) List() ([]Owner, error) {
	if o == "" {
		return nil, nil
	}
	var list []Owner
	if err := json.Unmarshal([]byte(o), &list); err != nil {
		return nil, fmt.Errorf("%w: the owners of labels: %w", ErrUnreadable, err)
	}
	return list, nil
}

// After returns the owners of the labels in the kept sets, given the former owners. A label without
// an owner has its former ones. Unreadable owners are left out.
func (o Owners) After(former Owners, kept ...map[string]string) Owners {
	if o == "" && former == "" {
		return ""
	}
	isKept := func(key string) bool {
		return slices.ContainsFunc(kept, func(set map[string]string) bool { _, isThere := set[key]; return isThere })
	}
	list, _ := o.List()
	hasOwner := map[string]bool{}
	for i, owner := range list {
		list[i].Keys = owner.Keys.Where(isKept)
		maps.Copy(hasOwner, owner.Keys.Set())
	}
	earlier, _ := former.List()
	for _, owner := range earlier {
		owner.Keys = owner.Keys.Where(func(key string) bool { return isKept(key) && !hasOwner[key] })
		list = add(list, owner)
	}
	return Of(list)
}

// Without returns the owners of the other keys.
func (o Owners) Without(keys labels.Keys) Owners {
	list, _ := o.List()
	for i, owner := range list {
		list[i].Keys = owner.Keys.Without(keys)
	}
	return Of(list)
}

// add adds an owner to a list.
func add(list []Owner, owner Owner) []Owner {
	for i, known := range list {
		if known.Manager == owner.Manager && known.Operation == owner.Operation {
			list[i].Keys = known.Keys.Union(owner.Keys)
			return list
		}
	}
	return append(list, owner)
}

// annotation holds the owners of a Node in memory.
const annotation = "nodekeeper.dev/label-owners"

// Note stores the owners of a Node in its metadata, in memory only.
func Note(n *metav1.PartialObjectMetadata, o Owners) {
	if delete(n.Annotations, annotation); o != "" {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, annotation, string(o))
	}
}

// Noted returns the owners of a Node, see [Note].
func Noted(n *metav1.PartialObjectMetadata) Owners { return Owners(n.Annotations[annotation]) }
