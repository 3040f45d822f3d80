package service_test

import (
	"bytes"
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
	"nodekeeper.dev/internal/service"
)

func parse(stderr io.Writer, args ...string) (*service.Options, error) {
	o := &service.Options{}
	fs := flag.NewFlagSet("watcher", flag.ContinueOnError)
	o.AddFlags(fs)
	return o, o.Parse(fs, args, stderr)
}

// defaults are the options of a pod named watcher-0 without arguments.
func defaults() service.Options {
	return service.Options{
		Options:         daemon.Options{MetricsBindAddress: ":8080", HealthProbeBindAddress: ":8081", PprofBindAddress: "0", Identity: "watcher-0"},
		MachineManagers: agents.Default, IgnoreLabels: labels.DefaultIgnored, SameMachineLabels: labels.DefaultSameMachine, View: view(agents.Default, labels.DefaultIgnored, ""), TransactionNamespace: "node-metadata-transactions", MetadataNamespace: "node-metadata", MembershipNamespace: "nodekeeper-system",
	}
}

// view is the view for these flags and the default --same-machine-labels.
func view(managers, ignored, selector string) nodeview.View {
	v, _ := nodeview.Parse(managers, ignored, selector)
	v.MachineBound, _ = labels.ParseMachineBound(labels.DefaultSameMachine)
	return v
}

func TestGoodOptions(t *testing.T) {
	t.Setenv("POD_NAME", "watcher-0")
	for name, tc := range map[string]struct {
		args []string
		want func(*service.Options)
	}{
		"none":         {nil, func(*service.Options) {}},
		"one dash":     {[]string{"-v=1"}, func(o *service.Options) { o.Verbosity = 1 }},
		"two dashes":   {[]string{"--v", "2"}, func(o *service.Options) { o.Verbosity = 2 }},
		"identity":     {[]string{"--identity=me.example.com"}, func(o *service.Options) { o.Identity = "me.example.com" }},
		"kubeconfig":   {[]string{"--kubeconfig=some file"}, func(o *service.Options) { o.Kubeconfig = "some file" }},
		"no endpoints": {[]string{"--metrics-bind-address=0", "--health-probe-bind-address=0"}, func(o *service.Options) { o.MetricsBindAddress, o.HealthProbeBindAddress = "0", "0" }},
		"namespaces": {[]string{"--transaction-namespace=a", "--metadata-namespace=b", "--membership-namespace=b"}, func(o *service.Options) {
			o.TransactionNamespace, o.MetadataNamespace, o.MembershipNamespace = "a", "b", "b"
		}},
		"agents": {[]string{"--machine-managers=kubelet, my-*"}, func(o *service.Options) {
			o.MachineManagers = "kubelet, my-*"
			o.View = view("kubelet,my-*", labels.DefaultIgnored, "")
		}},
		"no agents": {[]string{"--machine-managers="}, func(o *service.Options) {
			o.MachineManagers = ""
			o.View = view("", labels.DefaultIgnored, "")
		}},
		"ignored labels": {[]string{"--ignore-labels=a, b/*"}, func(o *service.Options) {
			o.IgnoreLabels = "a, b/*"
			o.View = view(agents.Default, "a,b/*", "")
		}},
		"same-machine labels": {[]string{"--same-machine-labels=*"}, func(o *service.Options) {
			o.SameMachineLabels = "*"
			o.View.MachineBound, _ = labels.ParseMachineBound("*")
		}},
		"no same-machine labels": {[]string{"--same-machine-labels="}, func(o *service.Options) {
			o.SameMachineLabels = ""
			o.View.MachineBound, _ = labels.ParseMachineBound("")
		}},
		"selected nodes": {[]string{"--node-selector=pool in (a, b),!skip"}, func(o *service.Options) {
			o.NodeSelector = "pool in (a, b),!skip"
			o.View = view(agents.Default, labels.DefaultIgnored, o.NodeSelector)
		}},
		"the last counts": {[]string{"--metadata-namespace=a", "--metadata-namespace=b"}, func(o *service.Options) { o.MetadataNamespace = "b" }},
	} {
		t.Run(name, func(t *testing.T) {
			want := defaults()
			tc.want(&want)
			var stderr bytes.Buffer
			got, err := parse(&stderr, tc.args...)
			require.NoError(t, err)
			assert.Equal(t, &want, got)
			assert.Empty(t, stderr.String())
		})
	}
}

func TestBadOptions(t *testing.T) {
	t.Setenv("POD_NAME", "watcher-0")
	for name, tc := range map[string]struct {
		args string
		want string
	}{
		"unknown flag":           {"--retentoin=1h", "flag provided but not defined: -retentoin: see watcher --help"},
		"argument":               {"run", `unexpected argument "run": every setting is a flag, see watcher --help`},
		"argument after flags":   {"-v=1 run now", `unexpected argument "run"`},
		"no number":              {"-v=high", `invalid value "high" for flag -v`},
		"verbosity below zero":   {"-v=-1", "-v -1: give 0 or more"},
		"everybody an agent":     {"--machine-managers=*", "--machine-managers: "},
		"unreadable pattern":     {"--ignore-labels=a*b*", "--ignore-labels: unreadable pattern"},
		"unreadable class":       {"--same-machine-labels=a*b*", "--same-machine-labels: unreadable pattern"},
		"the marker is ignored":  {"--ignore-labels=labels_*", "--ignore-labels: \"labels_*\" matches labels_restored"},
		"no value":               {"--identity", "flag needs an argument: -identity"},
		"transaction namespace":  {"--transaction-namespace=Transactions", `--transaction-namespace "Transactions" is not a valid namespace name: `},
		"empty namespace":        {"--metadata-namespace=", `--metadata-namespace "" is not a valid namespace name: `},
		"namespace with a dot":   {"--metadata-namespace=a.b", `--metadata-namespace "a.b" is not a valid namespace name: `},
		"members with locks":     {"--transaction-namespace=a --membership-namespace=a", `--transaction-namespace and --membership-namespace are both "a": give two different ones`},
		"one namespace for both": {"--transaction-namespace=a --metadata-namespace=a", `--transaction-namespace and --metadata-namespace are both "a": give two different ones`},
		"identity in capitals":   {"--identity=Me", `--identity "Me" cannot be used: `},
		"identity too long":      {"--identity=" + strings.Repeat("x", 254), "cannot be used: must be no more than 253 "},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			_, err := parse(&stderr, strings.Fields(tc.args)...)
			require.ErrorContains(t, err, tc.want)
			assert.NotContains(t, err.Error(), "\n", "an error is one line")
			assert.Empty(t, stderr.String(), "a returned error is not printed as well")
		})
	}
}

func TestHelpIsPrintedWithoutError(t *testing.T) {
	for _, arg := range []string{"-h", "-help", "--help"} {
		var stderr bytes.Buffer
		_, err := parse(&stderr, arg)
		require.ErrorIs(t, err, daemon.ErrHelp)
		for _, want := range []string{"Usage of watcher:", "-kubeconfig file", `(default "node-metadata")`, "-identity name"} {
			assert.Contains(t, stderr.String(), want)
		}
	}
}

func TestVersionFlagWinsOverOtherErrors(t *testing.T) {
	for _, args := range [][]string{{"--version"}, {"-version", "--metadata-namespace=A_B"}, {"--version", "now"}} {
		_, err := parse(io.Discard, args...)
		require.ErrorIs(t, err, daemon.ErrVersion, "%v", args)
	}
	_, err := parse(io.Discard, "--version=false")
	require.NoError(t, err)
}

func TestIdentityDefaultsToHostName(t *testing.T) {
	t.Setenv("POD_NAME", "")
	host, err := os.Hostname()
	require.NoError(t, err)
	first, err := parse(io.Discard)
	require.NoError(t, err)
	second, err := parse(io.Discard)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(first.Identity, strings.ToLower(host)+"-"), "%s", first.Identity)
	assert.NotEqual(t, first.Identity, second.Identity, "two processes on one host")
}

func TestIdentityFlagWinsOverPodName(t *testing.T) {
	t.Setenv("POD_NAME", "watcher-0")
	o, err := parse(io.Discard, "--identity=me")
	require.NoError(t, err)
	assert.Equal(t, "me", o.Identity)
}
