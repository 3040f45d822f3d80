// Command release builds all files of a release into a directory: make release. The same sources,
// version and Go toolchain give the same files, byte for byte, independent of the place and time of
// the build.
//
// release.go lists the parts of a release. Each part has a file: programs.go, licences.go, sbom.go,
// archive.go, plugin.go, images.go, manifests.go, chart.go. The command signs nothing: the workflow
// release.yaml does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "release: %v\n", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has run
	}
}

// semver matches the versions that Go modules, Krew, Helm and image tags all accept.
var semver = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

const allPlatforms = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64"

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	var r release
	flags.StringVar(&r.root, "root", ".", "`directory` of the sources")
	flags.StringVar(&r.out, "o", "dist", "`directory` of the files; it must be empty or missing")
	flags.StringVar(&r.version, "version", "", "the version, as v1.2.3")
	flags.StringVar(&r.commit, "commit", "unknown", "the commit of the sources")
	created := flags.Int64("created", 0, "creation time of everything, in `seconds` since 1970: the time of the commit")
	flags.StringVar(&r.ldflags, "ldflags", "", "flags of the linker")
	flags.StringVar(&r.homepage, "homepage", "", "`URL` of the site")
	flags.StringVar(&r.repository, "repository", "", "`URL` of the sources; the files of a release are below it")
	flags.StringVar(&r.registry, "registry", "", "registry and path of the images")
	platforms := flags.String("platforms", allPlatforms, "build the plugins for these, and images for those of linux")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !semver.MatchString(r.version) {
		return fmt.Errorf("-version %q: give one like v1.2.3", r.version)
	}
	for name, value := range map[string]string{"homepage": r.homepage, "repository": r.repository, "registry": r.registry} {
		if value == "" {
			return errors.New("give -" + name)
		}
	}
	r.created = time.Unix(*created, 0).UTC()
	for platform := range strings.SplitSeq(*platforms, ",") {
		goos, arch, found := strings.Cut(platform, "/")
		if !found {
			return fmt.Errorf("-platforms %q: give OS/ARCH", platform)
		}
		r.platforms = append(r.platforms, target{goos, arch})
		if goos == "linux" {
			r.architectures = append(r.architectures, target{goos, arch})
		}
	}
	if r.architectures == nil {
		return fmt.Errorf("-platforms %q: give one of linux, too: images are built for linux", *platforms)
	}
	if err := r.build(ctx); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%s: %d files, see %s\n", r.out, len(r.files), sumsFile)
	return err
}
