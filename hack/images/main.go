// Command images packs built programs as container images (make images). It needs no container daemon and no base
// image: an image holds the program and nothing else, as in the Dockerfile.
//
// image.go says what is in an image, archive.go in what form it is written.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "images: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	var b build
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	dir := flags.String("o", ".", "`directory` of the images")
	tag := flags.String("tag", "dev", "`tag` of the images")
	created := flags.String("created", "0", "`seconds` since 1970 that the images say they were made at; the commit's time keeps them reproducible")
	flags.StringVar(&b.architecture, "arch", "", "GOARCH that the programs were built for")
	flags.StringVar(&b.version, "version", "", "`version` of the programs")
	flags.StringVar(&b.revision, "revision", "", "`commit` of the programs")
	flags.Usage = func() {
		_, _ = fmt.Fprintln(flags.Output(), "usage: images -arch GOARCH [flags] PROGRAM-FILE...")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if b.architecture == "" || flags.NArg() == 0 {
		return errors.New("give -arch and the files of the programs, see -help")
	}
	seconds, err := strconv.ParseInt(*created, 10, 64)
	if err != nil {
		return fmt.Errorf("-created: %w", err)
	}
	b.created = time.Unix(seconds, 0).UTC()
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return err
	}
	for _, program := range flags.Args() {
		if err := pack(b, program, *tag, *dir, out); err != nil {
			return fmt.Errorf("packing %s: %w", program, err)
		}
	}
	return nil
}

// pack writes the image of one program into dir, and a line about it to out.
func pack(b build, program, tag, dir string, out io.Writer) error {
	img, err := b.image(program)
	if err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	name := "nodekeeper-" + filepath.Base(program)
	path := filepath.Join(dir, name+".tar")
	if err := writeArchive(path, name, tag, img); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s  %s:%s  linux/%s  %s\n", path, name, tag, b.architecture, digest)
	return err
}
