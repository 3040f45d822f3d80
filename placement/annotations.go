package placement

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"

	"nodekeeper.dev/placement/schedule"
)

// DefaultPrefix is the default prefix of annotation keys.
const DefaultPrefix = "placement.nodekeeper.dev"

// ErrMalformedAnnotation is returned for an annotation that cannot be parsed. The error contains
// its key.
var ErrMalformedAnnotation = errors.New("malformed annotation")

// Annotations encodes a status as flat annotations, for kinds that cannot embed [Status]. The zero
// value uses [DefaultPrefix]. The encoding omits ObservedGeneration, ReadyVReplicas and Conditions,
// for which every status has fields of its own.
//
//	status:
//	  annotations:
//	    placement.nodekeeper.dev/scheduler.placeable.MaxAllowedVReplicas: "12"
//	    placement.nodekeeper.dev/scheduler.placeable.Placements.0.PodName: worker-0
//	    placement.nodekeeper.dev/scheduler.placeable.Placements.0.VReplicas: "2"
//	    placement.nodekeeper.dev/scheduler.placeable.Placements.0.Indexes: 0-1
type Annotations struct {
	// Prefix precedes the slash in each key. If empty, it is DefaultPrefix.
	Prefix string
}

func (a Annotations) key(name string) string {
	prefix := a.Prefix
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return prefix + "/" + name
}

const (
	placeable  = "scheduler.placeable."
	mostKey    = placeable + "MaxAllowedVReplicas"
	placements = placeable + "Placements."
	releasing  = placeable + "Releasing."
	decision   = placeable + "Decision"
)

// Replicas returns the desired number of virtual replicas, which users set in metadata.annotations.
// It returns [DefaultReplicas] if the annotation is missing, and [ErrInvalidReplicas] if it is
// malformed.
func (a Annotations) Replicas(annotations map[string]string) (int32, error) {
	key := a.key("replicas")
	text, isSet := annotations[key]
	if !isSet {
		return DefaultReplicas, nil
	}
	n, err := parse(text, math.MaxInt32)
	if err != nil {
		return 0, fmt.Errorf("%w: annotation %s: %w", ErrInvalidReplicas, key, err)
	}
	return int32(n), nil //nolint:gosec // parse bounds it
}

// Encode returns a copy of annotations in which the keys of the status are replaced by the encoding
// of s. Other keys are unchanged.
func (a Annotations) Encode(s *Status, annotations map[string]string) map[string]string {
	next := maps.Clone(annotations)
	if next == nil {
		next = map[string]string{}
	}
	shares, former := a.key(placements), a.key(releasing)
	maps.DeleteFunc(next, func(key, _ string) bool {
		return key == a.key(mostKey) || key == a.key(decision) || strings.HasPrefix(key, shares) || strings.HasPrefix(key, former)
	})
	if s.MaxAllowedVReplicas != nil {
		next[a.key(mostKey)] = number(int64(*s.MaxAllowedVReplicas))
	}
	if s.Decision != 0 {
		next[a.key(decision)] = number(s.Decision)
	}
	encodeShares(shares, s.Placement, next)
	encodeShares(former, s.Releasing, next)
	return next
}

func encodeShares(prefix string, shares []Placement, into map[string]string) {
	for i := range shares {
		p := &shares[i]
		key := prefix + strconv.Itoa(i) + "."
		into[key+"PodName"] = p.PodName
		into[key+"VReplicas"] = number(int64(p.VReplicas))
		if p.Incarnation != "" {
			into[key+"Incarnation"] = p.Incarnation
		}
		if p.Indexes != "" {
			into[key+"Indexes"] = p.Indexes
		}
		if p.Since != 0 {
			into[key+"Since"] = number(p.Since)
		}
	}
}

// Decode returns the status encoded in annotations. It returns [ErrMalformedAnnotation] for a
// malformed number, a share without a pod name or a number of virtual replicas, or a gap in the
// numbering of shares.
func (a Annotations) Decode(annotations map[string]string) (Status, error) {
	var s Status
	for key, set := range map[string]func(int64){
		a.key(mostKey):  func(n int64) { s.MaxAllowedVReplicas = new(int32(n)) }, //nolint:gosec // decodeNumber bounds it
		a.key(decision): func(n int64) { s.Decision = n },
	} {
		most := int64(MaxNumber)
		if key == a.key(mostKey) {
			most = math.MaxInt32
		}
		if err := decodeNumber(annotations, key, most, set); err != nil {
			return Status{}, err
		}
	}
	var err error
	if s.Placement, err = decodeShares(annotations, a.key(placements)); err != nil {
		return Status{}, err
	}
	if s.Releasing, err = decodeShares(annotations, a.key(releasing)); err != nil {
		return Status{}, err
	}
	if err := s.Check(); err != nil {
		return Status{}, malformed(a.key(placements), err)
	}
	return s, nil
}

func decodeShares(annotations map[string]string, prefix string) ([]Placement, error) {
	count := 0
	for key := range annotations {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		place, _, isField := strings.Cut(rest, ".")
		i, err := parse(place, math.MaxInt32-1)
		if err != nil || !isField {
			return nil, malformed(key, errors.New("the number of a share is missing or malformed"))
		}
		count = max(count, int(i)+1)
	}
	if count > len(annotations) { // one key must not cause a large allocation
		return nil, malformed(prefix+strconv.Itoa(count-1), errors.New("shares before it are missing"))
	}
	var shares []Placement
	for i := range count {
		p, err := decodeShare(annotations, prefix+strconv.Itoa(i)+".")
		if err != nil {
			return nil, err
		}
		shares = append(shares, p)
	}
	return shares, nil
}

func decodeShare(annotations map[string]string, prefix string) (Placement, error) {
	for _, field := range []string{"PodName", "VReplicas"} {
		if _, isSet := annotations[prefix+field]; !isSet {
			return Placement{}, malformed(prefix+field, errors.New("missing"))
		}
	}
	p := Placement{
		PodName: annotations[prefix+"PodName"], Incarnation: annotations[prefix+"Incarnation"], Indexes: annotations[prefix+"Indexes"],
	}
	if _, err := schedule.CountSet(p.Indexes); err != nil {
		return Placement{}, malformed(prefix+"Indexes", err)
	}
	err := decodeNumber(annotations, prefix+"VReplicas", math.MaxInt32, func(n int64) { p.VReplicas = int32(n) }) //nolint:gosec // parse bounds it
	if err != nil {
		return Placement{}, err
	}
	return p, decodeNumber(annotations, prefix+"Since", MaxNumber, func(n int64) { p.Since = n })
}

func decodeNumber(annotations map[string]string, key string, most int64, set func(int64)) error {
	text, isSet := annotations[key]
	if !isSet {
		return nil
	}
	n, err := parse(text, most)
	if err != nil {
		return malformed(key, err)
	}
	set(n)
	return nil
}

func malformed(key string, err error) error {
	return fmt.Errorf("%w %s: %w", ErrMalformedAnnotation, key, err)
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// parse parses a number from 0 to most without a sign or leading zeros.
func parse(text string, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most || number(n) != text {
		return 0, fmt.Errorf("%q is not a number from 0 to %d", text, most)
	}
	return n, nil
}
