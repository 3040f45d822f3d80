package barrier

import (
	"encoding/json"
	"fmt"
	"strconv"

	"nodekeeper.dev/internal/revision"
)

// Question asks other watchers, after a list of Nodes: have you stored everything that you observed
// up to this list?
type Question struct {
	// Number is the number of the list. Each list of a watcher has a higher one.
	Number int
	// List is the resourceVersion of the list, and Newest the highest one of its Nodes.
	List, Newest revision.Revision
	// Digest is the digest of the Nodes in the list.
	Digest Digest
}

// Answer is a watcher's progress with a question. A higher answer includes the lower ones.
type Answer int

const (
	// NotYet means that the watcher is behind, or has events to store.
	NotYet Answer = iota
	// Alike means that the watcher has the same incarnations as the list, none of which has changed
	// since, and that everything it observed is stored, except for the nodes that the answer names.
	// It may not have seen an incarnation that came and went before the list.
	Alike
	// Passed means that the watcher has observed everything up to the list and stored all of it,
	// except for the nodes that the answer names.
	Passed
)

// Answer returns the answer of a watcher that has observed everything up to a position, has Nodes
// with the given digest, and has stored everything that it observed at or before the list.
func (q Question) Answer(position revision.Revision, digest Digest) Answer {
	switch {
	case !q.List.After(position):
		return Passed
	case !q.Newest.After(position) && q.Digest == digest:
		return Alike
	}
	return NotYet
}

// questionJSON is the stored form of a question.
type questionJSON struct {
	Number int    `json:"number"`
	List   string `json:"list"`
	Newest string `json:"newest,omitempty"`
	Digest string `json:"digest"`
}

// MarshalJSON returns the stored form.
func (q Question) MarshalJSON() ([]byte, error) {
	return json.Marshal(questionJSON{q.Number, q.List.String(), q.Newest.String(), fmt.Sprintf("%016x", uint64(q.Digest))})
}

// UnmarshalJSON parses the stored form.
func (q *Question) UnmarshalJSON(text []byte) error {
	var stored questionJSON
	if err := json.Unmarshal(text, &stored); err != nil {
		return err //nolint:wrapcheck // of the same package as the caller
	}
	list, err := revision.Parse(stored.List)
	if err != nil {
		return fmt.Errorf("question %d: %w", stored.Number, err)
	}
	digest, err := strconv.ParseUint(stored.Digest, 16, 64)
	if err != nil {
		return fmt.Errorf("question %d: %w", stored.Number, err)
	}
	*q = Question{Number: stored.Number, List: list, Newest: revision.Of(stored.Newest), Digest: Digest(digest)}
	return nil
}
