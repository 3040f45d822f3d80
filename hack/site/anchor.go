package main

import (
	"strconv"
	"strings"
	"unicode"
)

// anchorNames makes the anchors of the headings of one page, as GitHub does, so that a link works in both places. It has how
// often each anchor was made.
type anchorNames map[string]int

// name returns the anchor of the next heading.
func (a anchorNames) name(heading string) string {
	anchor := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
	n := a[anchor]
	a[anchor]++
	if n > 0 {
		return anchor + "-" + strconv.Itoa(n)
	}
	return anchor
}
