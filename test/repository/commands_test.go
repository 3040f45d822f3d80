package repository_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"nodekeeper.dev/internal/plugin/cli"
	"nodekeeper.dev/test/pages"
	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/repository"
)

// unchecked are pages that name what there is not: in the past, in a plan, or because that is what
// they show.
var unchecked = []string{"CHANGELOG.md", "placement/docs/design.md", "docs/cli/", "sharding/docs/cli.md", "tools/"}

// TestCommandsOnThePagesExist: what the pages have people type, and what they name in their
// text, fits this repository: targets and variables of make, commands and flags of the plugin,
// flags of the programs, packages, tests, paths of manifests and values of the chart. It runs none
// of them. docs/development.md lists what does.
func TestCommandsOnThePagesExist(t *testing.T) {
	o := newOurs(t)
	checked := map[string]int{}
	for _, page := range markdown(t, o.root) {
		if slices.ContainsFunc(unchecked, func(prefix string) bool { return strings.HasPrefix(page, prefix) }) {
			continue
		}
		commands, err := pages.Commands(filepath.Join(o.root, page))
		require.NoError(t, err)
		for _, c := range commands {
			kind, problem := o.check(c)
			checked[kind]++
			assert.Empty(t, problem, "%s:%d: %s", page, c.Line, strings.Join(c.Words, " "))
		}
	}
	delete(checked, "")
	t.Logf("checked: %v", checked)
	for _, kind := range []string{"make", "plugin", "manifests", "program", "go", "path", "helm", "value"} {
		assert.Greater(t, checked[kind], 5, kind)
	}
}

// ours is what there is in this repository.
type ours struct {
	t              *testing.T
	root, makefile string
	values         map[string]any   // of the chart
	otherValues    []map[string]any // of the charts of the other products
	flags          map[string]map[string]programs.Flag
}

func newOurs(t *testing.T) *ours {
	t.Helper()
	root, err := repository.Root()
	require.NoError(t, err)
	o := &ours{t: t, root: root, makefile: "", flags: map[string]map[string]programs.Flag{}}
	o.makefile = o.read("Makefile")
	require.NoError(t, yaml.Unmarshal([]byte(o.read("deploy", "chart", "nodekeeper", "values.yaml")), &o.values))
	for _, chart := range []string{"sharding/deploy/chart/sharder", "placement/deploy/chart/placement"} {
		var values map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(o.read(chart, "values.yaml")), &values))
		o.otherValues = append(o.otherValues, values)
	}
	require.Contains(t, o.values, "watcher")
	return o
}

func (o *ours) read(path ...string) string {
	o.t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{o.root}, path...)...))
	require.NoError(o.t, err)
	return string(content)
}

func (o *ours) exists(path string) bool {
	_, err := os.Stat(filepath.Join(o.root, path))
	return err == nil
}

var (
	programName = regexp.MustCompile(`^(?:bin/)?(watcher|processor|webhook|ui|sharder|placement|queue|example-checksum|kubectl-nodekeeper|kubectl-rings)$`)
	// ourPath is a path that stands for itself in a text, without what a path of packages ends
	// with. That of a value of the chart has dots.
	ourPath  = regexp.MustCompile(`^((?:cmd|deploy|docs|hack|internal|placement|sharding|test|tools)/[\w./-]*?)(?:/?[.]{3}|[.]Test\w+)?$`)
	ourValue = regexp.MustCompile(`^([a-z]\w*)(?:\.[a-z]\w*)*\.([a-z]\w*):?$`)
)

// check returns what kind of command it is, and what is wrong with it.
func (o *ours) check(c pages.Command) (kind, problem string) {
	first, rest := c.Words[0], c.Words[1:]
	program := programName.FindStringSubmatch(first)
	switch {
	case first == "make":
		return "make", o.checkMake(rest)
	case first == "kubectl" && len(rest) > 0 && rest[0] == "nodekeeper":
		return "plugin", checkPlugin(rest[1:], c.Named)
	case first == "kubectl" && len(rest) > 0 && rest[0] == "rings":
		return "plugin", o.checkRings(rest[1:])
	case first == "kubectl" && slices.ContainsFunc(rest, ofManifests.MatchString):
		return "manifests", o.checkManifests(rest)
	case first == "helm":
		return "helm", o.checkHelm(rest)
	case first == "go" && len(rest) > 1:
		return "go", o.checkGo(rest)
	case program != nil && len(rest) > 0 && (strings.HasPrefix(rest[0], "-") || hasCommands(program[1])):
		return "program", o.checkProgram(program[1], rest)
	case c.Named && len(rest) == 0 && ourPath.MatchString(first):
		return "path", o.checkPath(ourPath.FindStringSubmatch(first)[1])
	case c.Named && o.isValue(first):
		return "value", o.checkValue(strings.TrimSuffix(first, ":"))
	}
	return "", ""
}

// checkMake checks targets, and variables that are set.
func (o *ours) checkMake(words []string) string {
	for _, word := range words {
		name, _, isVariable := strings.Cut(word, "=")
		quoted := regexp.QuoteMeta(name)
		switch {
		case strings.HasPrefix(word, "-"):
		case isVariable && !regexp.MustCompile(`[$]\(`+quoted+`\)|,`+quoted+`\)|(?m:^`+quoted+` [?:]?=)`).MatchString(o.makefile):
			return "the Makefile has no variable " + name
		case !isVariable && !regexp.MustCompile(`(?m)^`+quoted+`:`).MatchString(o.makefile):
			return "the Makefile has no target " + name
		}
	}
	return ""
}

// checkPlugin has the plugin parse a command. One that is named in a text may lack arguments.
func checkPlugin(words []string, isNamed bool) string {
	cmd, rest, err := cli.NewCommand(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: io.Discard, ErrOut: io.Discard}).Find(words)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil && (!isNamed || !cmd.HasParent()) { // the arguments of the root are those of no command
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// checkRings has the built plugin kubectl rings parse the command and the flags of a command line, and
// not its arguments.
func (o *ours) checkRings(words []string) string {
	path, err := programs.Path("kubectl-rings")
	require.NoError(o.t, err)
	command, rest := []string{"help"}, slices.Clone(words)
	if len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		command = append(command, words[0])
	}
	for _, args := range [][]string{command, append(rest, "--help")} {
		if out, err := exec.CommandContext(o.t.Context(), path, args...).CombinedOutput(); err != nil {
			return string(out)
		}
	}
	return ""
}

// isByPeople reports whether a path is in a directory that the pages have people make.
func isByPeople(path string) bool { return strings.HasPrefix(path+"/", "deploy/overlays/mine/") }

// ofManifests is the flag of a file or a directory, or, by its first group, of what kustomize
// takes.
var ofManifests = regexp.MustCompile(`^(?:-f|--filename|(-k|--kustomize))(?:=(.*))?$`)

// checkManifests checks the paths of manifests. A file without a directory is the reader's own.
func (o *ours) checkManifests(words []string) string {
	for i, word := range words {
		found := ofManifests.FindStringSubmatch(word)
		if found == nil {
			continue
		}
		isDir, path := found[1] != "", found[2]
		if path == "" && i+1 < len(words) {
			path = words[i+1]
		}
		if strings.Contains(path, "://") || !strings.Contains(path, "/") || isByPeople(path) {
			continue
		}
		if !o.exists(path) || isDir && !o.exists(path+"/kustomization.yaml") {
			return "there are no manifests in " + path
		}
	}
	return ""
}

// checkHelm checks values that are set, and files of values. The archive of a chart is unpacked
// into a directory of its name.
func (o *ours) checkHelm(words []string) string {
	for i, word := range words[:max(0, len(words)-1)] {
		switch word {
		case "--set", "--set-string", "--set-json":
			for one := range strings.SplitSeq(words[i+1], ",") {
				name, _, _ := strings.Cut(one, "=")
				if problem := o.checkValue(name); problem != "" {
					return problem
				}
			}
		case "-f", "--values":
			if name, isOfChart := strings.CutPrefix(words[i+1], "nodekeeper/"); isOfChart && !o.exists("deploy/chart/nodekeeper/"+name) {
				return "the chart has no " + name
			}
		}
	}
	return ""
}

// isValue reports whether a text is a path in the values of the chart, by its first name.
func (o *ours) isValue(text string) bool {
	found := ourValue.FindStringSubmatch(text)
	if found == nil {
		return false
	}
	_, isThere := o.values[found[1]]
	return isThere && !slices.Contains([]string{"yaml", "go", "log"}, found[2]) // else it is a file
}

// checkValue checks that one of the charts has a value.
func (o *ours) checkValue(path string) string {
	if !hasValue(o.values, path) && !slices.ContainsFunc(o.otherValues, func(values map[string]any) bool { return hasValue(values, path) }) {
		return "the chart has no value " + path
	}
	return ""
}

func hasValue(values map[string]any, path string) bool {
	var at any = values
	for name := range strings.SplitSeq(path, ".") {
		below, isMap := at.(map[string]any)
		value, isThere := below[name]
		if !isMap || !isThere {
			return false
		}
		at = value
	}
	return true
}

func (o *ours) checkPath(path string) string {
	if !o.exists(path) && !isByPeople(path) && filepath.Ext(path) != ".html" { // which is of the site
		return "there is no " + path
	}
	return ""
}

// checkProgram compares flags with those in the help of a program.
func (o *ours) checkProgram(program string, words []string) string {
	switch program {
	case "ui":
		return checkPlugin(append([]string{"ui"}, words...), true)
	case "kubectl-nodekeeper":
		return checkPlugin(words, true)
	case "kubectl-rings":
		return o.checkRings(words)
	}
	var command []string
	if hasCommands(program) && !strings.HasPrefix(words[0], "-") {
		command, words = words[:1], words[1:]
	}
	called := strings.Join(append([]string{program}, command...), " ")
	if o.flags[called] == nil {
		flags, err := programs.Flags(o.t.Context(), program, command...)
		if err != nil {
			return err.Error()
		}
		o.flags[called] = flags
	}
	for _, word := range words {
		if word == "--" { // what follows is for another program
			break
		}
		name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if _, isThere := o.flags[called][name]; strings.HasPrefix(word, "-") && !isThere && name != "help" {
			return called + " has no flag " + name
		}
	}
	return ""
}

// hasCommands reports whether the first argument of a program is a command with flags of its own.
func hasCommands(program string) bool { return program == "placement" || program == "queue" }

// TestWrongCommandsAreFound has one of each kind.
func TestWrongCommandsAreFound(t *testing.T) {
	o := newOurs(t)
	for command, want := range map[string]string{
		"make demo KEEP=1":                                   "",
		"make dmeo":                                          "no target dmeo",
		"make demo KEPT=1":                                   "no variable KEPT",
		"kubectl nodekeeper show node-1 -o yaml":             "",
		"kubectl nodekeeper shew node-1":                     "no command \"shew\"",
		"kubectl rings show website":                         "",
		"kubectl rings shew website":                         "no command \"shew\"",
		"kubectl nodekeeper show node-1 --outptu=yaml":       "unknown flag",
		"kubectl nodekeeper status node-1":                   "node-1",
		"kubectl nodekeeper status --stuck-after=soon":       "invalid",
		"kubectl apply -k deploy/overlays/ha":                "",
		"kubectl apply -k deploy/overlays/hi":                "no manifests in deploy/overlays/hi",
		"kubectl apply -k deploy/gate":                       "no manifests in deploy/gate",
		"kubectl delete --filename=deploy/gate/policies.yml": "no manifests in deploy/gate/policies.yml",
		"kubectl apply -f ring.yaml":                         "",
		"helm install x ./nodekeeper -f nodekeeper/values-ha.yaml --set watcher.replicas=3,image.tag=v1": "",
		"helm install x ./nodekeeper -f nodekeeper/values-hi.yaml":                                       "no values-hi.yaml",
		"helm upgrade x ./nodekeeper --set watcher.replica=3":                                            "no value watcher.replica",
		"go run ./test/bench -nodes=1":                                                                   "",
		"go run ./test/bench -knots=1":                                                                   "no flag knots",
		"go run ./test/bank":                                                                             "no package test/bank",
		"go -C hack test -count=1 ./images":                                                              "",
		"go -C hack test ./imagos":                                                                       "no package hack/imagos",
		"go test -run=TestRootPasses -v ./test/repository":                                               "",
		"go test ./test/repository -run TestRuutPasses":                                                  "no Test that matches TestRuutPasses",
		"bin/watcher --record-updates=false":                                                             "",
		"bin/watcher --workers=3":                                                                        "watcher has no flag workers",
		"ui --context=x --port=8080":                                                                     "",
		"placement agent --pool=worker --exec -- worker --any":                                           "",
		"placement agent --pol=worker":                                                                   "placement agent has no flag pol",
		"bin/placement controller --exec":                                                                "placement controller has no flag exec",
		"placement agnet --pool=worker":                                                                  "agnet",
		"placement --help":                                                                               "",
		"queue check --wait=1m":                                                                          "",
		"queue check --count=1":                                                                          "queue check has no flag count",
	} {
		t.Run(command, func(t *testing.T) {
			kind, problem := o.check(pages.Command{Words: strings.Fields(command)})
			assert.NotEmpty(t, kind)
			if want == "" {
				assert.Empty(t, problem)
			} else {
				assert.Contains(t, problem, want)
			}
		})
	}
	_, problem := o.check(pages.Command{Words: []string{"hack/krew"}, Named: true})
	assert.Equal(t, "there is no hack/krew", problem)
	_, problem = o.check(pages.Command{Words: []string{"kubectl", "nodekeeper", "iu"}, Named: true})
	assert.Contains(t, problem, `no command "iu"`)
	_, problem = o.check(pages.Command{Words: []string{"admission.gates"}, Named: true})
	assert.Equal(t, "the chart has no value admission.gates", problem)
}
