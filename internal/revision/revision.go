// Package revision defines the resourceVersion of a Node as a type that is parsed once. It is pure.
//
// Only revisions of one kind of object may be compared: other kinds may be stored in another etcd.
package revision

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Revision is a well-formed resourceVersion, a positive number of any length. The zero value means
// none: every other revision is after it. Revisions can be compared with ==.
type Revision struct{ digits string }

// Parse returns the revision for a resourceVersion, or an error if a live object cannot have it,
// for example "" or "0".
func Parse(resourceVersion string) (Revision, error) {
	if _, err := resourceversion.CompareResourceVersion(resourceVersion, resourceVersion); err != nil {
		return Revision{}, fmt.Errorf("%q is not a resourceVersion", resourceVersion)
	}
	return Revision{resourceVersion}, nil
}

// Of returns the revision of an object that the API server has returned, or zero if its
// resourceVersion is not well-formed.
func Of(resourceVersion string) Revision {
	r, err := Parse(resourceVersion)
	if err != nil {
		return Revision{} // etcd never assigns such a resourceVersion, and zero is older than all others
	}
	return r
}

// MustParse is like Parse, but panics on an error. It is for constants.
func MustParse(resourceVersion string) Revision {
	r, err := Parse(resourceVersion)
	if err != nil {
		panic(err)
	}
	return r
}

// Compare returns -1 if r is before other, 0 if they are equal and 1 if r is after other.
func (r Revision) Compare(other Revision) int {
	// The shorter number is the smaller one, because neither has leading zeros.
	return cmp.Or(cmp.Compare(len(r.digits), len(other.digits)), cmp.Compare(r.digits, other.digits))
}

// After reports whether r is after other.
func (r Revision) After(other Revision) bool { return r.Compare(other) > 0 }

// IsZero reports whether r is the zero value.
func (r Revision) IsZero() bool { return r.digits == "" }

// String returns the resourceVersion, or "" for the zero value.
func (r Revision) String() string { return r.digits }

// MarshalText returns the resourceVersion, for logs and JSON.
func (r Revision) MarshalText() ([]byte, error) { return []byte(r.digits), nil }

// Max returns the latest of the revisions, or zero if there are none.
func Max(revisions ...Revision) Revision {
	var latest Revision
	for _, r := range revisions {
		if r.After(latest) {
			latest = r
		}
	}
	return latest
}
