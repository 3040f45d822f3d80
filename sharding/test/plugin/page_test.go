package plugin_test

import "strings"

// intro begins the page.
const intro = "# kubectl rings\n\n" +
	"The plugin of the sharder shows rings, their shards, and which shard owns an object and why. It changes nothing. To use it, run\n" +
	"`make build` and put `bin/kubectl-rings` into `$PATH`. For completion of its arguments, also put\n" +
	"`sharding/cmd/kubectl-rings/kubectl_complete-rings` there.\n"

// page returns the documentation page of the plugin, with the help and the session of each command.
func (e *env) page(sessions map[string]string) string {
	var page strings.Builder
	page.WriteString(intro)
	writeBlock(&page, e.Must("--help"))
	for _, command := range []string{"list", "show", "owner", "version"} {
		page.WriteString("\n## kubectl rings " + command + "\n")
		writeBlock(&page, e.Must(command, "--help"))
		page.WriteString("\nIn a terminal:\n")
		writeBlock(&page, sessions[command])
	}
	page.WriteString("\n## Flags of every command\n")
	writeBlock(&page, e.Must("options"))
	return page.String()
}

// writeBlock writes a block of preformatted text.
func writeBlock(page *strings.Builder, text string) {
	page.WriteString("\n```\n" + strings.TrimSpace(text) + "\n```\n")
}
