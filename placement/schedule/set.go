package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Set is a set of indexes in ascending order. Its text form is like "0-2,7".
type Set []int32

// MaxIndexes is the maximum number of indexes in a text, so that a short text cannot cause a large
// allocation.
const MaxIndexes = 1 << 20

// ErrMalformedSet is returned for a text that is not a set.
var ErrMalformedSet = errors.New("malformed set of indexes")

// ParseSet parses the text form of a set: numbers and ranges in ascending order, separated by
// commas. The empty text is the empty set. Errors are [ErrMalformedSet].
func ParseSet(text string) (Set, error) {
	count, err := CountSet(text)
	if err != nil || count == 0 {
		return nil, err
	}
	set := make(Set, 0, count)
	err = scanSet(text, func(first, last int32) {
		for i := first; ; i++ {
			set = append(set, i)
			if i == last {
				break
			}
		}
	})
	return set, err
}

// CountSet returns the number of indexes in the text form of a set without listing them, so that
// its cost depends on the length of the text only. Its errors are those of [ParseSet].
func CountSet(text string) (count int, err error) {
	err = scanSet(text, func(first, last int32) { count += int(last-first) + 1 })
	return count, err
}

// scanSet calls each for the ranges of a set in ascending order, until it finds an error.
func scanSet(text string, each func(first, last int32)) error {
	if text == "" {
		return nil
	}
	count, before := int64(0), int32(-1)
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		first, err := parseIndex(low)
		last := first
		if err == nil && isRange {
			last, err = parseIndex(high)
		}
		count += int64(last) - int64(first) + 1
		switch {
		case err != nil:
			return fmt.Errorf("%w: %q", ErrMalformedSet, text)
		case last < first || first <= before:
			return fmt.Errorf("%w: %q is not in ascending order", ErrMalformedSet, text)
		case count > MaxIndexes:
			return fmt.Errorf("%w: %q has more than %d indexes", ErrMalformedSet, text, MaxIndexes)
		}
		each(first, last)
		before = last
	}
	return nil
}

// parseIndex parses a number without a sign or leading zeros.
func parseIndex(text string) (int32, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err == nil && strconv.FormatUint(n, 10) != text {
		err = ErrMalformedSet
	}
	return int32(n), err
}

// String returns the text form of the set.
func (s Set) String() string {
	var b []byte
	for i := 0; i < len(s); {
		last := i
		for last+1 < len(s) && s[last+1] == s[last]+1 {
			last++
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(s[i]), 10)
		if last > i {
			b = strconv.AppendInt(append(b, '-'), int64(s[last]), 10)
		}
		i = last + 1
	}
	return string(b)
}

// Has reports whether the set contains an index.
func (s Set) Has(index int32) bool {
	_, ok := slices.BinarySearch(s, index)
	return ok
}

// Below returns the indexes below a limit. The result shares memory with s.
func (s Set) Below(limit int32) Set {
	at, _ := slices.BinarySearch(s, limit)
	return s[:at:at]
}

// With returns the set with an index added. It does not modify s.
func (s Set) With(index int32) Set {
	at, ok := slices.BinarySearch(s, index)
	if ok {
		return s
	}
	return slices.Insert(slices.Clone(s), at, index)
}

// Without returns the set with an index removed. It does not modify s.
func (s Set) Without(index int32) Set {
	at, ok := slices.BinarySearch(s, index)
	if !ok {
		return s
	}
	return slices.Delete(slices.Clone(s), at, at+1)
}
