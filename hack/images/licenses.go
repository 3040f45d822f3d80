package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// about is what the list of modules begins with.
const about = `The programs of this image, and the Go modules that are linked into them.

nodekeeper, etcd and Kubernetes are under the Apache License 2.0, which is in the file LICENSE.
The licence of another module is in its sources: https://pkg.go.dev/MODULE@VERSION?tab=licenses
That of Go and its standard library is at https://go.dev/LICENSE.
`

// licenses returns what the image of the demo has in its directory licenses: the Apache License,
// which is that of all of its programs, and the modules that are linked into them. The texts of
// these modules are not in the image: the modules of downloaded programs are not on this machine.
// A release builds all programs, and has the texts.
func licenses(apache string, programs []string) (map[string][]byte, error) {
	text, err := os.ReadFile(apache)
	if err != nil {
		return nil, err
	}
	var list strings.Builder
	list.WriteString(about)
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, fmt.Errorf("reading the modules of %s: %w", program, err)
		}
		_, _ = fmt.Fprintf(&list, "\n/%s: %s, %s\n", filepath.Base(program), info.Path, info.GoVersion)
		for _, module := range append([]*debug.Module{&info.Main}, info.Deps...) {
			if module.Replace != nil {
				module = module.Replace
			}
			_, _ = fmt.Fprintln(&list, strings.TrimRight("\t"+module.Path+" "+module.Version, " "))
		}
	}
	return map[string][]byte{"licenses/LICENSE": text, "licenses/modules.txt": []byte(list.String())}, nil
}
