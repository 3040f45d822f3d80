package labels

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strings"
)

// Marker is the key of the label that a restore puts onto a Node. Its value is
// the revision of the record that the labels came from. It is never one of the
// node's own labels: [Split] takes it out, and no comparison sees it.
const Marker = "labels_restored"

// Pending is the value of the marker of a Node that has the startup taint: its labels are not back.
const Pending = "pending"

// TypeKey is the data key under which a transaction keeps its type.
const TypeKey = "type"

// MaxKeyLength is the length in bytes that a ConfigMap key may have (DNS1123SubdomainMaxLength in
// k8s.io/apimachinery/pkg/util/validation, used by IsConfigMapKey).
const MaxKeyLength = 253

const (
	formPrefix    = "---" // of every form but the ordinary one: no label key begins with a dash
	slashToken    = "---SLASH---"
	escapedPrefix = "---ESCAPED---"
	longPrefix    = "---LONG---"
)

// ErrUndecodable means that no label encodes to a data entry.
var ErrUndecodable = errors.New("not an encoded label")

var (
	escaper   = strings.NewReplacer("_", "_U", "/", "_S", ":", "_C")
	unescaper = strings.NewReplacer("_U", "_", "_S", "/", "_C", ":")
)

// Split returns the labels of a Node without the marker, and the marker's
// value, "" if there is none. The result is a copy and never nil.
func Split(nodeLabels map[string]string) (own map[string]string, marker string) {
	own = make(map[string]string, len(nodeLabels))
	maps.Copy(own, nodeLabels)
	marker = own[Marker]
	delete(own, Marker)
	return own, marker
}

// Encode returns labels as ConfigMap data. For legal label keys the result has
// one entry a label, every key is a legal ConfigMap key, none is [TypeKey] or
// [Marker], and [Decode] gives the labels back. The result is never nil.
func Encode(labels map[string]string) map[string]string {
	data := make(map[string]string, len(labels))
	for key, value := range labels {
		dataKey, dataValue := EncodeEntry(key, value)
		data[dataKey] = dataValue
	}
	return data
}

// Decode returns the labels that [Encode] made data from. An entry that Encode
// cannot have made gives an error that wraps [ErrUndecodable] and names it.
// The result is never nil.
func Decode(data map[string]string) (map[string]string, error) {
	labels := make(map[string]string, len(data))
	for dataKey, dataValue := range data {
		key, value, err := DecodeEntry(dataKey, dataValue)
		if err != nil {
			return nil, err
		}
		labels[key] = value
	}
	return labels, nil
}

// EncodeEntry returns one label as an entry of ConfigMap data. It is injective:
// two labels with different keys have different data keys (for the hashed form
// of long keys, as far as SHA-256 has no collisions).
func EncodeEntry(key, value string) (dataKey, dataValue string) {
	text := readable(key)
	dataKey = strings.Replace(text, "/", slashToken, 1)
	if strings.Contains(text, slashToken) || restoreSlash(dataKey) != text || isReserved(key) {
		dataKey = escapedPrefix + escaper.Replace(key)
	}
	if len(dataKey) > MaxKeyLength {
		sum := sha256.Sum256([]byte(key))
		return longPrefix + hex.EncodeToString(sum[:]), key + "=" + value
	}
	return dataKey, value
}

// DecodeEntry is the inverse of [EncodeEntry]. What EncodeEntry cannot have
// made gives an error that wraps [ErrUndecodable].
func DecodeEntry(dataKey, dataValue string) (key, value string, err error) {
	key, value = candidate(dataKey, dataValue)
	// The candidate is right only if it encodes to just this entry: that is what makes
	// decoding injective too, and a guess impossible.
	if againKey, againValue := EncodeEntry(key, value); againKey != dataKey || againValue != dataValue {
		return "", "", fmt.Errorf("data key %q: %w", dataKey, ErrUndecodable)
	}
	return key, value, nil
}

// candidate is the only label that can have given the entry, if any can.
func candidate(dataKey, dataValue string) (key, value string) {
	if strings.HasPrefix(dataKey, longPrefix) {
		key, value, _ = strings.Cut(dataValue, "=") // a label key has no "="
		return key, value
	}
	if escaped, ok := strings.CutPrefix(dataKey, escapedPrefix); ok {
		return unescaper.Replace(escaped), dataValue
	}
	if key, ok := unreadable(restoreSlash(dataKey)); ok {
		return key, dataValue
	}
	if strings.HasPrefix(dataKey, formPrefix) {
		return "", "" // an unknown form: no label at all
	}
	return restoreSlash(dataKey), dataValue
}

// restoreSlash puts the slash back in place of the first token. That is wrong for some text, such as an
// annotation whose prefix is "SLASH" (the prefix of an annotation may have upper case): EncodeEntry
// escapes such keys.
func restoreSlash(dataKey string) string { return strings.Replace(dataKey, slashToken, "/", 1) }

// isReserved reports whether nodekeeper uses this data key itself.
func isReserved(key string) bool {
	return key == TypeKey || key == Marker
}
