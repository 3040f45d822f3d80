package watcher

import (
	"encoding/json"
	"fmt"
	"strconv"

	"nodekeeper.dev/internal/revision"
)

// Question is what a watcher asks the others after it has listed the Nodes: have you stored
// everything that you observed up to this list?
type Question struct {
	// Number is that of the list. Each list of a watcher has a higher one.
	Number int
	// List is the resourceVersion of the list, and Newest the highest one of the Nodes in it.
	List, Newest revision.Revision
	// Digest is that of the Nodes in the list, see [Digest].
	Digest Digest
}

// Answer is how far a watcher has come with a question. A higher answer includes the lower ones.
type Answer int

const (
	// NotYet is the answer of those that are behind, or have something to store.
	NotYet Answer = iota
	// Alike means that this watcher knows the same incarnations as the list, none of which has
	// changed since, and that everything it observed is stored. It may not have seen an incarnation
	// that came and went before the list.
	Alike
	// Passed means that this watcher has observed everything up to the list, and that all of it is
	// stored.
	Passed
)

// Answer returns the answer of a watcher that has observed everything up to a position, and knows
// Nodes of that digest. holds reports whether it holds an event that was observed at a revision or
// before.
func (q Question) Answer(position revision.Revision, known Digest, holds func(upTo revision.Revision) bool) Answer {
	answer := NotYet
	switch {
	case !q.List.After(position):
		answer = Passed
	case !q.Newest.After(position) && q.Digest == known:
		answer = Alike
	}
	if answer != NotYet && holds(q.List) {
		return NotYet
	}
	return answer
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

// UnmarshalJSON takes the stored form.
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
