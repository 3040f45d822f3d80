// Package fieldmanagers keeps the field managers that own the labels of a Node, so that a restore
// can give the labels back to them. Otherwise they would belong to nodekeeper from then on, and a
// tool that applies labels could never remove one again. Package preserve decides whose a label is.
// This package is pure.
package fieldmanagers

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

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
// nodekeeper owns labels that it has not yet given back.
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

// List returns the owners that the API server accepts: managers have 1 to 128 printable bytes
// (MaxFieldManagerLength in k8s.io/apimachinery/pkg/apis/meta/v1/validation), and records can be
// written by hand.
func (o Owners) List() ([]Owner, error) {
	if o == "" {
		return nil, nil
	}
	var list []Owner
	if err := json.Unmarshal([]byte(o), &list); err != nil {
		return nil, fmt.Errorf("%w: the owners of labels: %w", ErrUnreadable, err)
	}
	return slices.DeleteFunc(list, func(owner Owner) bool {
		isValid := owner.Operation == metav1.ManagedFieldsOperationApply || owner.Operation == metav1.ManagedFieldsOperationUpdate
		return !isValid || owner.Manager == "" || len(metav1validation.ValidateFieldManager(owner.Manager, nil)) > 0
	}), nil
}

// After returns the owners of the labels in the later sets, given the former owners and the former
// sets. A label that still has a value that it had keeps its former owners if it has none now, or if
// nodekeeper is one of them: whoever took it before it was given back is not its only owner. Unreadable
// owners are left out.
func (o Owners) After(former Owners, before, after []map[string]string) Owners {
	if o == "" && former == "" {
		return ""
	}
	list, _ := o.List()
	isOwned, isOurs := map[string]bool{}, map[string]bool{}
	for i, owner := range list {
		list[i].Keys = owner.Keys.Where(func(key string) bool { return len(valuesOf(key, after)) > 0 })
		maps.Copy(isOwned, owner.Keys.Set())
		if IsNodekeeper(owner.Manager) {
			maps.Copy(isOurs, owner.Keys.Set())
		}
	}
	earlier, _ := former.List()
	for _, owner := range earlier {
		owner.Keys = owner.Keys.Where(func(key string) bool {
			then := valuesOf(key, before)
			isSame := slices.ContainsFunc(valuesOf(key, after), func(value string) bool { return slices.Contains(then, value) })
			return isSame && (!isOwned[key] || isOurs[key])
		})
		list = add(list, owner)
	}
	return Of(list)
}

// valuesOf returns the values of a key in sets of labels.
func valuesOf(key string, sets []map[string]string) (all []string) {
	for _, set := range sets {
		if value, isThere := set[key]; isThere {
			all = append(all, value)
		}
	}
	return all
}

// Others returns the owners without nodekeeper.
func (o Owners) Others() Owners {
	list, _ := o.List()
	return Of(slices.DeleteFunc(list, func(owner Owner) bool { return IsNodekeeper(owner.Manager) }))
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
	for i, other := range list {
		if other.Manager == owner.Manager && other.Operation == owner.Operation {
			list[i].Keys = other.Keys.Union(owner.Keys)
			return list
		}
	}
	return append(list, owner)
}
