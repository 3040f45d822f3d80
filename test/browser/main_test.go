package browser_test

import (
	"flag"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// update has the pictures of docs taken.
var update = flag.Bool("update", false, "rewrite the pictures of docs")

// shoot returns a picture of the visible page. WebP is small enough for a repository.
func (b *tab) shoot(format page.CaptureScreenshotFormat) []byte {
	b.t.Helper()
	const quality = int64(82)
	taken, err := chromedp.Call(b.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: format, Quality: new(quality)})
	require.NoError(b.t, err)
	return taken.Data
}
