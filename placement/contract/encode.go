package contract

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// Digest returns the digest of an encoded contract.
func Digest(encoded []byte) string {
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:8])
}

// Encode returns the canonical encoding of a contract: entries sorted by UID, known fields in a
// fixed order followed by unknown ones, no spaces.
func (c *Contract) Encode() []byte {
	b := make([]byte, 0, 128+256*len(c.Entries))
	b = appendString(append(b, `{"incarnation":`...), c.Incarnation)
	b = appendInt(b, `,"generation":`, c.Generation)
	b = append(b, `,"entries":[`...)
	entries := c.Entries
	if !slices.IsSortedFunc(entries, compareUIDs) {
		entries = slices.SortedStableFunc(slices.Values(entries), compareUIDs)
	}
	for i := range entries {
		if i > 0 {
			b = append(b, ',')
		}
		b = entries[i].append(b)
	}
	return append(c.unknown.append(append(b, ']')), '}')
}

func compareUIDs(a, b Entry) int { return cmp.Compare(a.UID, b.UID) }

func (e *Entry) append(b []byte) []byte {
	b = appendString(append(b, `{"uid":`...), string(e.UID))
	b = appendString(append(b, `,"apiVersion":`...), e.APIVersion)
	b = appendString(append(b, `,"kind":`...), e.Kind)
	b = appendString(append(b, `,"namespace":`...), e.Namespace)
	b = appendString(append(b, `,"name":`...), e.Name)
	b = appendInt(b, `,"generation":`, e.Generation)
	b = appendInt(b, `,"decision":`, e.Decision)
	b = appendInt(b, `,"changed":`, e.Changed)
	b = appendInt(b, `,"of":`, int64(e.Of))
	b = append(b, `,"replicas":{`...)
	for i, index := range slices.Sorted(maps.Keys(e.Replicas)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, '"'), int64(index), 10)
		b = appendInt(b, `":`, e.Replicas[index])
	}
	b = append(b, '}')
	if e.Payload != nil {
		b = append(append(b, `,"payload":`...), e.Payload...)
	}
	return append(e.unknown.append(b), '}')
}

// Encode returns the canonical encoding of an acknowledgement.
func (a *Ack) Encode() []byte {
	b := appendString([]byte(`{"incarnation":`), a.Incarnation)
	b = appendInt(b, `,"generation":`, a.Generation)
	b = appendString(append(b, `,"digest":`...), a.Digest)
	b = appendMap(b, `,"stopping":`, a.Stopping, func(b []byte, uid types.UID) []byte {
		b = append(b, '[')
		for i, index := range a.Stopping[uid] {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(index), 10)
		}
		return append(b, ']')
	})
	b = appendMap(b, `,"failing":`, a.Failing, func(b []byte, uid types.UID) []byte { return appendString(b, a.Failing[uid]) })
	return append(a.unknown.append(b), '}')
}

// appendMap appends a field with a map, unless the map is empty.
func appendMap[V any](b []byte, key string, m map[types.UID]V, value func([]byte, types.UID) []byte) []byte {
	if len(m) == 0 {
		return b
	}
	b = append(append(b, key...), '{')
	for i, uid := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = value(append(appendString(b, string(uid)), ':'), uid)
	}
	return append(b, '}')
}

func (f fields) append(b []byte) []byte {
	for _, key := range slices.Sorted(maps.Keys(f)) {
		b = append(appendString(append(b, ','), key), ':')
		b = append(b, f[key]...)
	}
	return b
}

func appendInt(b []byte, key string, n int64) []byte {
	return strconv.AppendInt(append(b, key...), n, 10)
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, _ := json.Marshal(s) //nolint:errchkjson // encoding a string cannot fail
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
