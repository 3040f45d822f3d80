package reference

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/programs"
)

// maxInline is the maximum length of a default in a table. Longer ones are lists below the tables.
const maxInline = 60

// required ends the usage of a flag that must be given.
const required = " (required)"

// FlagsOf returns the flags of a program, or of one of its commands, except --help. It fails for a
// flag that is not required and has no definite default.
func FlagsOf(t *testing.T, program string, command ...string) []programs.Flag {
	t.Helper()
	flags, err := programs.Flags(t.Context(), program, command...)
	require.NoError(t, err)
	delete(flags, "help")
	require.NotEmpty(t, flags)
	for _, f := range flags {
		assert.True(t, f.Default != "" || f.Value == "" || strings.HasSuffix(f.Usage, required), "--%s of %s: state the default in the usage: (default none)", f.Name, program)
		assert.NotContains(t, f.Default, "(default", "--%s of %s has two defaults", f.Name, program)
	}
	return slices.SortedFunc(maps.Values(flags), programs.ByName)
}

// FlagTable returns a table of flags, with further information in links, by the names of flags. The
// page must have a section --NAME for each flag whose default is a list.
func FlagTable(t *testing.T, flags []programs.Flag, links map[string]string) string {
	t.Helper()
	var rows strings.Builder
	rows.WriteString("| flag | meaning | default |\n| --- | --- | --- |\n")
	for _, f := range flags {
		require.NotContains(t, f.Usage, "|", "--%s", f.Name)
		name, meaning := "--"+f.Name, markCode(strings.TrimSuffix(f.Usage, required))
		if len(f.Name) == 1 {
			name = "-" + f.Name
		}
		if link := links[f.Name]; link != "" {
			meaning = strings.TrimSuffix(meaning, ".") + ". See " + link
		}
		rows.WriteString(strings.TrimRight("| `"+name+"` | "+meaning+" | "+defaultCell(f), " ") + " |\n")
	}
	return rows.String()
}

// IsLong reports whether the default of a flag is too long for a table.
func IsLong(f programs.Flag) bool { return len(f.Default) > maxInline }

// defaultCell returns the table cell of the default.
func defaultCell(f programs.Flag) string {
	switch {
	case f.Name == "version": // has a different effect
		return ""
	case strings.HasSuffix(f.Usage, required):
		return "required"
	case f.Default == "": // a boolean flag
		return "`false`"
	case IsLong(f):
		return "[a list](#--" + f.Name + ")"
	case f.Default == "none" || strings.Contains(f.Default, " "): // a description instead of a value
		return markCode(f.Default)
	}
	return "`" + f.DefaultValue() + "`"
}

// word matches a quoted string, or a word with a following colon or full stop.
var word = regexp.MustCompile(`"[^"]*"|[^\s"(),;]+`)

// markCode returns a text of --help with its code in backticks: quoted strings, keys, patterns,
// paths and variables.
func markCode(text string) string {
	return word.ReplaceAllStringFunc(text, func(w string) string {
		if inQuotes := strings.Trim(w, `"`); inQuotes != w {
			return "`" + inQuotes + "`"
		}
		code := strings.TrimRight(w, ":.")
		if strings.ContainsAny(code, "/*$") || strings.HasPrefix(code, ":") || strings.HasPrefix(code, "--") {
			return "`" + code + "`" + w[len(code):]
		}
		return w
	})
}
