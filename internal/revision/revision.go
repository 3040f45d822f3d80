// Package revision is the resourceVersion of a Node as a type that is parsed once. It is pure.
//
// Only revisions of one kind of object are compared: other kinds may be stored in another etcd.
package revision

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Revision is a well-formed resourceVersion, a positive number of any length. The zero value is
// none: every other revision is after it. Revisions are equal if they are == to each other.
type Revision struct{ digits string }

// Parse returns the revision that a resourceVersion stands for, or an error if no live object
// can have it: "" and "0", for example.
func Parse(resourceVersion string) (Revision, error) {
	if _, err := resourceversion.CompareResourceVersion(resourceVersion, resourceVersion); err != nil {
		return Revision{}, fmt.Errorf("%q is not a resourceVersion", resourceVersion)
	}
	return Revision{resourceVersion}, nil
}

// Of returns the revision of an object that the API server has returned, none if that is not
// well-formed.
func Of(resourceVersion string) Revision {
	r, err := Parse(resourceVersion)
	if err != nil {
		return Revision{} // etcd never assigns such a one, and none is older than everything
	}
	return r
}

// MustParse is Parse for constants: it panics on an error.
func MustParse(resourceVersion string) Revision {
	r, err := Parse(resourceVersion)
	if err != nil {
		panic(err)
	}
	return r
}

// Compare returns -1 if r is before other, 0 if they are equal and 1 if r is after other.
func (r Revision) Compare(other Revision) int {
	// The shorter number is the smaller one: neither has leading zeros.
	return cmp.Or(cmp.Compare(len(r.digits), len(other.digits)), cmp.Compare(r.digits, other.digits))
}

// After reports whether r is after other.
func (r Revision) After(other Revision) bool { return r.Compare(other) > 0 }

// IsZero reports whether r is none.
func (r Revision) IsZero() bool { return r.digits == "" }

// String returns the resourceVersion, "" for none.
func (r Revision) String() string { return r.digits }

// MarshalText returns the resourceVersion, for logs and JSON.
func (r Revision) MarshalText() ([]byte, error) { return []byte(r.digits), nil }

// Max returns the latest of the revisions, none if there are none.
func Max(revisions ...Revision) Revision {
	var latest Revision
	for _, r := range revisions {
		if r.After(latest) {
			latest = r
		}
	}
	return latest
}
