// Command images packs built programs as container images: each image contains only the program
// (make images), or one image contains the demo with all programs that it starts (make demo-image).
// See package oci.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"nodekeeper.dev/hack/oci"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "images: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	var b oci.Build
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	dir := flags.String("o", ".", "`directory` of the images")
	tag := flags.String("tag", "dev", "`tag` of the images")
	demo := flags.Bool("demo", false, "pack one image, which runs the first program, the demo, and has the license and a list of the modules of its programs")
	license := flags.String("license", "LICENSE", "`file` with the Apache License, for the image of the demo")
	created := flags.Int64("created", 0, "creation time of the images, in `seconds` since 1970; the commit's time keeps them reproducible")
	flags.StringVar(&b.Architecture, "arch", "", "GOARCH that the programs were built for")
	flags.StringVar(&b.Version, "version", "", "`version` of the programs")
	flags.StringVar(&b.Revision, "revision", "", "`commit` of the programs")
	flags.Usage = func() {
		_, _ = fmt.Fprintln(flags.Output(), "usage: images -arch GOARCH [flags] PROGRAM-FILE...")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if b.Architecture == "" || flags.NArg() == 0 {
		return errors.New("give -arch and the files of the programs, see -help")
	}
	b.Created = time.Unix(*created, 0).UTC()
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return err
	}
	programs, extra := flags.Args(), oci.Extra{}
	if *demo {
		texts, err := licenses(*license, programs)
		if err != nil {
			return err
		}
		programs, extra = programs[:1], oci.Demo(programs[1:])
		extra.Licenses = texts
	}
	for _, program := range programs {
		if err := pack(b, program, extra, *tag, *dir, out); err != nil {
			return fmt.Errorf("packing %s: %w", program, err)
		}
	}
	return nil
}

// pack writes the image of one program into dir, and prints a line about it to out.
func pack(b oci.Build, program string, extra oci.Extra, tag, dir string, out io.Writer) error {
	img, err := b.Image(program, extra)
	if err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	name := oci.Name(program)
	path := filepath.Join(dir, name+".tar")
	if err := oci.WriteImage(path, name, tag, img); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s  %s:%s  linux/%s  %s\n", path, name, tag, b.Architecture, digest)
	return err
}
