package pages

import (
	"testing"

	"nodekeeper.dev/test/reference"
)

func TestReferenceHasTheFlagsOfTheSharder(t *testing.T) {
	reference.Check(t, "sharding/docs/reference.md", "flags", reference.FlagTable(t, reference.FlagsOf(t, "sharder"), nil))
}
