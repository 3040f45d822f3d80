//go:build !race

package library

const underRace = false
