package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// kubernetesSums contains the releases of Kubernetes that can be built besides the one in go.mod,
// in the format of go.sum. To add one, run this in the root of the repository:
//
//	go mod download -json k8s.io/kubernetes@v1.37.2 |
//		jq -r '"\(.Path) \(.Version) \(.Sum)"' >>hack/controlplane/kubernetes.sum
//
//go:embed kubernetes.sum
var kubernetesSums string

// staging is the path, inside the sources of Kubernetes, of the modules that it publishes with each
// release: v1.30.14 of Kubernetes has v0.30.14 of each.
const staging = "./staging/"

// release is a release of Kubernetes.
type release struct {
	version string // such as v1.30.14
	sum     string // of its module, as in go.sum
}

// releaseOf returns the release with a minor version, such as 1.30.
func releaseOf(minor, sums string) (release, error) {
	var known []string
	for _, pin := range regexp.MustCompile(`(?m)^k8s\.io/kubernetes (v([0-9]+\.[0-9]+)\.[0-9]+) (h1:\S+)$`).FindAllStringSubmatch(sums, -1) {
		if pin[2] == minor {
			return release{version: pin[1], sum: pin[3]}, nil
		}
		known = append(known, pin[2])
	}
	return release{}, fmt.Errorf("no release of Kubernetes %s is pinned in hack/controlplane/kubernetes.sum: choose from %s", minor, strings.Join(known, ", "))
}

// build is a source. It builds kube-apiserver and kubectl of the release with the dependencies that
// the release names, and the etcd of go.mod, which serves all of them.
func (r release) build(ctx context.Context, dir string) error {
	sources, err := r.download(ctx)
	if err != nil {
		return err
	}
	modules, err := os.MkdirTemp("", "kubernetes-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(modules) }()
	modfile := filepath.Join(modules, "go.mod")
	if err := r.writeModfile(ctx, sources, modfile); err != nil {
		return err
	}
	if err := buildPrograms(ctx, r.version, module, dir, map[string]string{"etcd": etcdPackage}); err != nil {
		return err
	}
	// Releases before 1.31 link the cloud providers without the tag.
	return buildPrograms(ctx, r.version, sources, dir, map[string]string{"kube-apiserver": "./cmd/kube-apiserver", "kubectl": "./cmd/kubectl"},
		"-mod=mod", "-modfile="+modfile, "-tags=providerless")
}

// download returns the directory with the sources, which it verifies.
func (r release) download(ctx context.Context) (string, error) {
	out, err := command(ctx, "mod", "download", "-json", "k8s.io/kubernetes@"+r.version).Output()
	if err != nil {
		return "", fmt.Errorf("downloading Kubernetes %s: %w: %s", r.version, err, out)
	}
	var got struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &got); err != nil {
		return "", err
	}
	if got.Sum != r.sum {
		return "", fmt.Errorf("the module of Kubernetes %s has the sum %s, and not %s as in kubernetes.sum", r.version, got.Sum, r.sum)
	}
	return got.Dir, nil
}

// writeModfile writes a go.mod like that of the sources, but with the published versions of the
// modules in staging. It omits the samples, which no program imports.
func (r release) writeModfile(ctx context.Context, sources, path string) error {
	for name, to := range map[string]string{"go.mod": path, "go.sum": strings.TrimSuffix(path, ".mod") + ".sum"} {
		content, err := os.ReadFile(filepath.Join(sources, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, content, 0o600); err != nil {
			return err
		}
	}
	out, err := command(ctx, "mod", "edit", "-json", path).Output()
	if err != nil {
		return err
	}
	var file struct {
		Replace []struct{ Old, New struct{ Path string } }
	}
	if err := json.Unmarshal(out, &file); err != nil {
		return err
	}
	edit := []string{"mod", "edit"}
	for _, replaced := range file.Replace {
		module := replaced.Old.Path
		switch {
		case !strings.HasPrefix(replaced.New.Path, staging):
		case strings.HasPrefix(module, "k8s.io/sample-"):
			edit = append(edit, "-dropreplace="+module, "-droprequire="+module)
		default:
			edit = append(edit, "-replace="+module+"="+module+"@v0"+strings.TrimPrefix(r.version, "v1"))
		}
	}
	return command(ctx, append(edit, path)...).Run()
}
