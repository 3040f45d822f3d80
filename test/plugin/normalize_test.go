package plugin_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// normalizer makes what differs from run to run alike: uids, resourceVersions of four digits, times and the version of the build.
// Nothing else changes its width.
type normalizer struct {
	uids, versions map[string]string
	build          string
}

func newNormalizer(build string) *normalizer {
	return &normalizer{uids: map[string]string{}, versions: map[string]string{}, build: build}
}

var (
	uidPattern     = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
	timePattern    = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	clockPattern   = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d{3}\b`)
	agePattern     = regexp.MustCompile(`\b\d{1,3}s( *)`)
	linkPattern    = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\?token=\w{52}\b`)
	versionPattern = regexp.MustCompile(`\b[1-9]\d{3}\b`)
)

func (n *normalizer) normalize(text string) string {
	text = strings.ReplaceAll(text, n.build, "v1.2.3")
	text = strings.ReplaceAll(text, `version: "v1.2.3"`, "version: v1.2.3") // as YAML has those that look like numbers
	text = linkPattern.ReplaceAllString(text, "http://127.0.0.1:41871/?token="+strings.Repeat("K7Q2MX5VJA4TN", 4))
	text = uidPattern.ReplaceAllStringFunc(text, func(uid string) string {
		return known(n.uids, uid, "%08x-0b1c-4bb5-8a43-6a1f2ac1d7a1")
	})
	text = timePattern.ReplaceAllString(text, "TIME")
	text = clockPattern.ReplaceAllString(text, "03:14:15.926")
	text = agePattern.ReplaceAllStringFunc(text, func(age string) string {
		if !strings.HasSuffix(age, "  ") {
			return "5s" + strings.Repeat(" ", strings.Count(age, " "))
		}
		return fmt.Sprintf("%-*s", len(age), "5s") // a cell of a table
	})
	text = versionPattern.ReplaceAllStringFunc(text, func(version string) string { return known(n.versions, version, "%d") })
	return strings.ReplaceAll(text, "TIME", "2026-11-21T03:14:15Z")
}

// known returns what stands for a value, each time the same.
func known(all map[string]string, value, format string) string {
	const first = 2571
	if all[value] == "" {
		all[value] = fmt.Sprintf(format, first+len(all))
	}
	return all[value]
}

// lineBuffer is a buffer that one goroutine writes and another reads.
type lineBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lineBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lineBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func rawMerge(patch string) client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(patch))
}
