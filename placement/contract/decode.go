package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"nodekeeper.dev/placement"
	"nodekeeper.dev/placement/schedule"
)

// ErrMalformed is returned for a contract or an acknowledgement that cannot be parsed.
var ErrMalformed = errors.New("malformed")

// DecodeContract parses a contract. An empty text is a contract that grants nothing. Errors are
// [ErrMalformed].
func DecodeContract(text []byte) (Contract, error) {
	var c Contract
	if len(text) == 0 {
		return c, nil
	}
	var entries []json.RawMessage
	rest, err := decodeFields(text, map[string]any{"incarnation": &c.Incarnation, "generation": &c.Generation, "entries": &entries})
	if err != nil {
		return Contract{}, fmt.Errorf("parsing a contract: %w", err)
	}
	c.unknown = rest
	for _, entry := range entries {
		e, err := decodeEntry(entry)
		if err != nil {
			return Contract{}, fmt.Errorf("parsing a contract: entry %q: %w", e.UID, err)
		}
		c.Entries = append(c.Entries, e)
	}
	slices.SortStableFunc(c.Entries, compareUIDs)
	for i := 1; i < len(c.Entries); i++ {
		if c.Entries[i].UID == c.Entries[i-1].UID {
			return Contract{}, fmt.Errorf("parsing a contract: %w: two entries for %q", ErrMalformed, c.Entries[i].UID)
		}
	}
	if err := inRange("generation", c.Generation); err != nil {
		return Contract{}, fmt.Errorf("parsing a contract: %w", err)
	}
	return c, nil
}

func decodeEntry(text []byte) (e Entry, err error) {
	var replicas map[string]int64
	e.unknown, err = decodeFields(text, map[string]any{
		"uid": &e.UID, "apiVersion": &e.APIVersion, "kind": &e.Kind, "namespace": &e.Namespace, "name": &e.Name,
		"generation": &e.Generation, "decision": &e.Decision, "changed": &e.Changed, "of": &e.Of, "replicas": &replicas, "payload": &e.Payload,
	})
	switch {
	case err != nil:
		return e, err
	case e.UID == "":
		return e, fmt.Errorf("%w: no uid", ErrMalformed)
	}
	if err := errors.Join(inRange("decision", e.Decision), inRange("changed", e.Changed)); err != nil {
		return e, err
	}
	e.Replicas = make(map[int32]int64, len(replicas))
	for key, epoch := range replicas {
		if err := inRange("epoch", epoch); err != nil {
			return e, err
		}
		index, err := strconv.ParseInt(key, 10, 32)
		if err != nil || index < 0 || strconv.FormatInt(index, 10) != key {
			return e, fmt.Errorf("%w: index %q", ErrMalformed, key)
		}
		e.Replicas[int32(index)] = epoch
	}
	return e, nil
}

// DecodeAck parses an acknowledgement. An empty text is an empty acknowledgement. Errors are
// [ErrMalformed].
func DecodeAck(text []byte) (Ack, error) {
	var a Ack
	if len(text) == 0 {
		return a, nil
	}
	var stopping map[types.UID][]int32
	rest, err := decodeFields(text, map[string]any{
		"incarnation": &a.Incarnation, "generation": &a.Generation, "digest": &a.Digest, "stopping": &stopping, "failing": &a.Failing,
	})
	if err != nil {
		return Ack{}, fmt.Errorf("parsing an acknowledgement: %w", err)
	}
	if err := inRange("generation", a.Generation); err != nil {
		return Ack{}, fmt.Errorf("parsing an acknowledgement: %w", err)
	}
	a.unknown = rest
	if len(a.Failing) == 0 {
		a.Failing = nil
	}
	for uid, indexes := range stopping {
		set := schedule.Set(slices.Clone(indexes))
		slices.Sort(set)
		set = slices.Compact(set)
		if len(set) == 0 {
			continue
		}
		if set[0] < 0 {
			return Ack{}, fmt.Errorf("parsing an acknowledgement: %w: index %d", ErrMalformed, set[0])
		}
		if a.Stopping == nil {
			a.Stopping = map[types.UID]schedule.Set{}
		}
		a.Stopping[uid] = set
	}
	return a, nil
}

// inRange returns an error if a number is negative or exceeds [placement.MaxNumber].
func inRange(name string, number int64) error {
	if number < 0 || number > placement.MaxNumber {
		return fmt.Errorf("%w: %s %d", ErrMalformed, name, number)
	}
	return nil
}

// decodeFields decodes a JSON object into the known fields, whose names are case-sensitive, and
// returns the unknown ones.
func decodeFields(text []byte, known map[string]any) (fields, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if all == nil {
		return nil, fmt.Errorf("%w: not an object", ErrMalformed)
	}
	var rest fields
	for key, value := range all {
		into, ok := known[key]
		if payload, raw := into.(*json.RawMessage); raw {
			*payload = compact(value)
			continue
		}
		if !ok {
			if rest == nil {
				rest = fields{}
			}
			rest[strings.ToValidUTF8(key, "\uFFFD")] = compact(value)
			continue
		}
		if err := json.Unmarshal(value, into); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrMalformed, key, err)
		}
	}
	return rest, nil
}

// compact returns a value without insignificant spaces, in valid UTF-8. It returns nil if the value
// is not JSON.
func compact(value json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return nil
	}
	return bytes.ToValidUTF8(b.Bytes(), []byte("\uFFFD"))
}
