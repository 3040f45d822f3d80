//go:build race

package library

const underRace = true
