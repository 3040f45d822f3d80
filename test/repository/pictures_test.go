package repository_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/test/repository"
)

// TestPicturesServeEveryReader: they are legible on a light and on a dark page, have a description
// in words, and load nothing.
func TestPicturesServeEveryReader(t *testing.T) {
	root, err := repository.Root()
	require.NoError(t, err)
	var pictures []string
	for _, docs := range []string{"docs", "sharding/docs", "placement/docs"} {
		found, err := filepath.Glob(filepath.Join(root, docs, "pictures", "*.svg"))
		require.NoError(t, err)
		require.NotEmpty(t, found, docs)
		pictures = append(pictures, found...)
	}
	for _, path := range pictures {
		t.Run(filepath.Base(path), func(t *testing.T) {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Contains(t, string(content), "prefers-color-scheme:dark")
			assert.NotRegexp(t, `(href|src)=|url\([^#]|@import`, string(content))
			texts := textsOf(t, content)
			assert.NotEmpty(t, texts["title"])
			assert.NotEmpty(t, texts["desc"])
		})
	}
}

// textsOf returns the text directly in each kind of element. The XML must be well formed.
func textsOf(t *testing.T, content []byte) map[string]string {
	t.Helper()
	texts := map[string]string{}
	var open []string
	decoder := xml.NewDecoder(bytes.NewReader(content))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			open = append(open, token.Name.Local)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				texts[open[len(open)-1]] += string(bytes.TrimSpace(token))
			}
		}
	}
}
