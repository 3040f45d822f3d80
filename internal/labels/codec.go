package labels

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strings"
)

// Marker is the key of the label that a restore sets on a Node. Its value is the revision of the
// record that the labels came from. It never counts as one of the node's own labels: [Split]
// removes it before any comparison.
const Marker = "labels_restored"

// Pending is the value of the marker of a Node that has the startup taint, because its labels are
// not restored yet.
const Pending = "pending"

// TypeKey is the data key of a transaction's type.
const TypeKey = "type"

// MaxKeyLength is the maximum length in bytes of a ConfigMap key (DNS1123SubdomainMaxLength in
// k8s.io/apimachinery/pkg/util/validation, used by IsConfigMapKey).
const MaxKeyLength = 253

const (
	formPrefix    = "---" // of every form but the ordinary one: label keys never begin with a dash
	slashToken    = "---SLASH---"
	escapedPrefix = "---ESCAPED---"
	longPrefix    = "---LONG---"
)

// ErrUndecodable means that a data entry is not the encoding of any label.
var ErrUndecodable = errors.New("not an encoded label")

var (
	escaper   = strings.NewReplacer("_", "_U", "/", "_S", ":", "_C")
	unescaper = strings.NewReplacer("_U", "_", "_S", "/", "_C", ":")
)

// Split returns the labels of a Node without the marker, and the marker's value, or "" if it is not
// set. The result is a copy and never nil.
func Split(nodeLabels map[string]string) (own map[string]string, marker string) {
	own = make(map[string]string, len(nodeLabels))
	maps.Copy(own, nodeLabels)
	marker = own[Marker]
	delete(own, Marker)
	return own, marker
}

// Encode returns labels as ConfigMap data. For valid label keys, the result has one entry per
// label, every key is a valid ConfigMap key other than [TypeKey] and [Marker], and [Decode] returns
// the labels again. The result is never nil.
func Encode(labels map[string]string) map[string]string {
	data := make(map[string]string, len(labels))
	for key, value := range labels {
		dataKey, dataValue := EncodeEntry(key, value)
		data[dataKey] = dataValue
	}
	return data
}

// Decode is the inverse of [Encode]. For an entry that Encode cannot have created, it returns an
// error that wraps [ErrUndecodable] and names the entry. The labels are never nil.
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

// EncodeEntry returns one label as an entry of ConfigMap data. It is injective: two labels with
// different keys have different data keys (for the hashed form of long keys, as long as SHA-256 has
// no collisions).
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

// DecodeEntry is the inverse of [EncodeEntry]. For an entry that EncodeEntry cannot have created,
// it returns an error that wraps [ErrUndecodable].
func DecodeEntry(dataKey, dataValue string) (key, value string, err error) {
	key, value = candidate(dataKey, dataValue)
	// The candidate is right only if it encodes to this very entry. This check makes decoding
	// injective, too, and rules out guesses.
	if againKey, againValue := EncodeEntry(key, value); againKey != dataKey || againValue != dataValue {
		return "", "", fmt.Errorf("data key %q: %w", dataKey, ErrUndecodable)
	}
	return key, value, nil
}

// candidate returns the only label that can have this encoding, if any can.
func candidate(dataKey, dataValue string) (key, value string) {
	if strings.HasPrefix(dataKey, longPrefix) {
		key, value, _ = strings.Cut(dataValue, "=") // label keys never contain "="
		return key, value
	}
	if escaped, ok := strings.CutPrefix(dataKey, escapedPrefix); ok {
		return unescaper.Replace(escaped), dataValue
	}
	if key, ok := keyFromReadable(restoreSlash(dataKey)); ok {
		return key, dataValue
	}
	if strings.HasPrefix(dataKey, formPrefix) {
		return "", "" // an unknown form: not a label
	}
	return restoreSlash(dataKey), dataValue
}

// restoreSlash replaces the first token by a slash. That is wrong for some keys, such as
// annotations with the prefix "SLASH" (prefixes of annotations may have upper case), which
// EncodeEntry therefore escapes.
func restoreSlash(dataKey string) string { return strings.Replace(dataKey, slashToken, "/", 1) }

// isReserved reports whether nodekeeper uses this data key itself.
func isReserved(key string) bool {
	return key == TypeKey || key == Marker
}
