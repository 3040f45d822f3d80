// Command publish copies the images of a release to their registry: make publish. It prints each as
// NAME@DIGEST, for signing. It uses the credentials of docker login.
package main

import (
	"archive/tar"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "publish: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("publish", flag.ContinueOnError)
	flags.Usage = func() { _, _ = fmt.Fprintln(flags.Output(), "usage: publish IMAGE-FILE...") }
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errors.New("give the files of the images")
	}
	for _, file := range flags.Args() {
		published, err := publish(ctx, file)
		if err != nil {
			return fmt.Errorf("publishing %s: %w", file, err)
		}
		if _, err := fmt.Fprintln(out, published); err != nil {
			return err
		}
	}
	return nil
}

// nameAnnotation contains the full name of an image, with registry and tag.
const nameAnnotation = "io.containerd.image.name"

// publish copies the index in a file to the name that the file contains, and returns that name with
// the digest. It does not change an existing tag with other content: a version is published once.
func publish(ctx context.Context, file string) (published string, err error) {
	dir, err := os.MkdirTemp("", "nodekeeper-publish-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := unpack(file, dir); err != nil {
		return "", err
	}
	index, full, err := load(dir)
	if err != nil {
		return "", err
	}
	tag, err := name.NewTag(full)
	if err != nil {
		return "", err
	}
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	there, err := remote.Head(tag, options...)
	var refused *transport.Error
	switch {
	case err == nil && there.Digest != digest:
		return "", fmt.Errorf("%s already exists with the digest %s: refusing to replace it with %s", tag, there.Digest, digest)
	case err != nil && (!errors.As(err, &refused) || refused.StatusCode != http.StatusNotFound):
		return "", err
	}
	if err := remote.WriteIndex(tag, index, options...); err != nil {
		return "", err
	}
	return tag.Context().Name() + "@" + digest.String(), nil
}

// load returns the only index of a layout, and its name.
func load(dir string) (v1.ImageIndex, string, error) {
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, "", err
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return nil, "", err
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations[nameAnnotation] == "" {
		return nil, "", errors.New("it does not hold one image that has a name")
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	return index, manifest.Manifests[0].Annotations[nameAnnotation], err
}

// unpack unpacks one of our archives into a directory, and writes nothing outside it.
func unpack(file, dir string) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for archive := tar.NewReader(f); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := root.MkdirAll(filepath.Dir(header.Name), 0o700); err != nil {
			return err
		}
		to, err := root.Create(header.Name)
		if err != nil {
			return err
		}
		_, err = io.Copy(to, archive)
		if err := errors.Join(err, to.Close()); err != nil {
			return err
		}
	}
}
