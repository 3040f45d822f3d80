package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

const (
	// releases is the URL where envtest publishes its archives.
	releases = "https://github.com/kubernetes-sigs/controller-tools/releases/download"
	// patience is the time after which a connection without progress fails.
	patience = 10 * time.Second
)

// download is the archive of envtest for one platform.
type download struct {
	from     string // the URL of all releases
	sums     string // in the format of sha512sum
	platform string // such as linux-amd64
	patience time.Duration
	out      io.Writer
}

// get is a source. It verifies the whole archive before it unpacks anything.
func (d *download) get(ctx context.Context, dir string) error {
	pin := regexp.MustCompile(`(?m)^([0-9a-f]{128})  (envtest-(v[0-9.]+)-` + d.platform + `\.tar\.gz)$`).FindStringSubmatch(d.sums)
	if pin == nil {
		return fmt.Errorf("envtest.sum has no archive for %s", d.platform)
	}
	want, name, version := pin[1], pin[2], pin[3]
	address := d.from + "/envtest-" + version + "/" + name
	_, _ = fmt.Fprintf(d.out, "controlplane: downloading etcd, kube-apiserver and kubectl %s: %s\n", version, address)
	archive, err := d.fetch(ctx, address)
	if err != nil {
		return fmt.Errorf("downloading %s: %w", name, err)
	}
	if sum := sha512.Sum512(archive); hex.EncodeToString(sum[:]) != want {
		return fmt.Errorf("%s has the SHA-512 %x…, want %.16s… (envtest.sum)", name, sum[:8], want)
	}
	if err := unpack(archive, dir); err != nil {
		return fmt.Errorf("unpacking %s: %w", name, err)
	}
	return nil
}

// fetch returns the content of a URL. It gives up if no data arrives for a while.
func (d *download) fetch(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(d.patience, cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // without the URL, which was already printed
	}
	var content bytes.Buffer
	if err == nil {
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return nil, errors.New(resp.Status)
		}
		for err == nil {
			silence.Reset(d.patience)
			_, err = io.CopyN(&content, resp.Body, 1<<16)
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return content.Bytes(), nil
	case !silence.Stop():
		return nil, fmt.Errorf("no data for %s: %w", d.patience, err)
	default:
		return nil, err
	}
}

// unpack writes the programs of an archive into a directory.
func unpack(archive []byte, dir string) error {
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	entries := tar.NewReader(unzipped)
	for found := 0; found < len(programs); {
		header, err := entries.Next()
		if err != nil {
			return fmt.Errorf("looking for %q: %w", programs, err)
		}
		name := path.Base(header.Name)
		if header.Typeflag != tar.TypeReg || !slices.Contains(programs, name) {
			continue
		}
		found++
		program, err := io.ReadAll(entries)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), program, 0o700); err != nil {
			return err
		}
	}
	return nil
}
