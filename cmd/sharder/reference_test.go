package main

import (
	"flag"
	"strings"
	"testing"

	"nodekeeper.dev/test/reference"
)

func TestReferenceHasTheFlags(t *testing.T) {
	t.Parallel()
	var o options
	var help strings.Builder
	fs := flag.NewFlagSet("sharder", flag.ContinueOnError)
	fs.SetOutput(&help)
	o.addFlags(fs)
	fs.Usage()
	reference.Check(t, "flags", "```console\n$ sharder --help\n"+strings.ReplaceAll(help.String(), "\t", "  ")+"```\n")
}
