package main

import (
	"archive/zip"
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestZipsHoldTheFilesAndTheTimeOfTheRelease covers Windows, for which the other tests build only
// if -full is set.
func TestZipsHoldTheFilesAndTheTimeOfTheRelease(t *testing.T) {
	modified := time.Unix(1700000000, 0).UTC()
	files := map[string]archived{"a.exe": {[]byte("program"), true}, "licenses/m/LICENSE": {[]byte("text"), false}}
	one, err := zipped(files, modified)
	require.NoError(t, err)
	another, err := zipped(files, modified)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(one, another))
	r, err := zip.NewReader(bytes.NewReader(one), int64(len(one)))
	require.NoError(t, err)
	require.Len(t, r.File, len(files))
	for _, file := range r.File {
		assert.True(t, modified.Equal(file.Modified), file.Name)
		f, err := file.Open()
		require.NoError(t, err)
		content, err := io.ReadAll(f)
		require.NoError(t, err)
		assert.Equal(t, files[file.Name].content, content)
		require.NoError(t, f.Close())
	}
}
