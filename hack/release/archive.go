package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"maps"
	"slices"
	"time"
)

// archived is a file in an archive. All files have the time of the release, and no owner.
type archived struct {
	content    []byte
	executable bool
}

func (a archived) mode() int64 {
	if a.executable {
		return 0o755
	}
	return 0o644
}

// tarGz packs files in the order of their names: the same files give the same archive.
func tarGz(files map[string]archived, modified time.Time) ([]byte, error) {
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := files[name]
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(file.content)), Mode: file.mode(), ModTime: modified}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(file.content); err != nil {
			return nil, err
		}
	}
	err = errors.Join(w.Close(), zipped.Close())
	return out.Bytes(), err
}

// zipped is like tarGz, for users without tar.
func zipped(files map[string]archived, modified time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: modified}
		f, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(files[name].content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
