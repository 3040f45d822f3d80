// Command krew builds the plugin for every platform, packs it, and writes the manifest by which Krew installs it: make krew.
package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
)

//go:embed manifest.yaml
var manifest string

// packed is what is in an archive besides the plugin, by paths in the repository.
var packed = []string{"LICENSE", "cmd/kubectl-nodekeeper/kubectl_complete-nodekeeper"}

// platform is one archive.
type platform struct{ OS, Arch, Bin, Archive, SHA256 string }

// release is what the manifest says.
type release struct {
	Version, URL string
	Platforms    []platform
}

func main() {
	version := flag.String("version", "", "the version, as v1.2.3")
	url := flag.String("url", "", "where the archives will be")
	dir := flag.String("dir", "dist", "where to write them")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64", "what to build for")
	flag.Parse()
	if err := run(*version, *url, *dir, strings.Split(*platforms, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "krew:", err)
		os.Exit(1)
	}
}

func run(version, url, dir string, platforms []string) error {
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`).MatchString(version) {
		return fmt.Errorf("-version %q: Krew takes versions like v1.2.3", version)
	}
	if url == "" {
		return errors.New("-url: say where the archives will be, https://example.com/v1.2.3 for instance")
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	r := release{Version: version, URL: strings.TrimSuffix(url, "/")}
	for _, target := range platforms {
		p, err := pack(version, dir, target)
		if err != nil {
			return fmt.Errorf("packing for %s: %w", target, err)
		}
		r.Platforms = append(r.Platforms, p)
	}
	text, err := template.New("manifest").Parse(manifest)
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(dir, "nodekeeper.yaml"))
	if err != nil {
		return err
	}
	return errors.Join(text.Execute(file, r), file.Close())
}

// pack builds the plugin for a platform and packs it.
func pack(version, dir, target string) (platform, error) {
	goos, arch, _ := strings.Cut(target, "/")
	p := platform{OS: goos, Arch: arch, Bin: "kubectl-nodekeeper", Archive: fmt.Sprintf("kubectl-nodekeeper_%s_%s_%s.tar.gz", version, goos, arch)}
	if goos == "windows" {
		p.Bin += ".exe"
	}
	temp, err := os.MkdirTemp("", "nodekeeper-krew-")
	if err != nil {
		return p, err
	}
	defer func() { _ = os.RemoveAll(temp) }() // only what was built: the archive is elsewhere
	bin := filepath.Join(temp, p.Bin)
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X nodekeeper.dev/internal/version.Version="+version, "-o", bin, "./cmd/kubectl-nodekeeper") //nolint:noctx // it ends by itself
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+arch)
	if out, err := build.CombinedOutput(); err != nil {
		return p, fmt.Errorf("%w: %s", err, out)
	}
	archive := filepath.Join(dir, p.Archive)
	if err := writeArchive(archive, append([]string{bin}, packed...)); err != nil {
		return p, err
	}
	content, err := os.ReadFile(archive)
	if err != nil {
		return p, err
	}
	sum := sha256.Sum256(content)
	p.SHA256 = hex.EncodeToString(sum[:])
	return p, nil
}

// writeArchive packs files without their directories and times: the same files make the same archive.
func writeArchive(path string, files []string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	zipped := gzip.NewWriter(file)
	archive := tar.NewWriter(zipped)
	for _, name := range files {
		if err = addFile(archive, name); err != nil {
			break
		}
	}
	return errors.Join(err, archive.Close(), zipped.Close(), file.Close())
}

func addFile(archive *tar.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it is only read
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: filepath.Base(path), Size: info.Size(), Mode: int64(info.Mode().Perm())}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(archive, file)
	return err
}
