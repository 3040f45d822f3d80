package daemon_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/daemon/version"
)

func TestMainTurnsErrorsIntoExitCodes(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		code   int
		stderr string
	}{
		"none":    {nil, 0, ""},
		"help":    {daemon.ErrHelp, 0, ""},
		"version": {daemon.ErrVersion, 0, ""},
		"any":     {errors.New("no cluster"), 1, "watcher: no cluster\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			code := daemon.Main("watcher", []string{"-v=1"}, &stderr, func(_ context.Context, args []string, _ io.Writer) error {
				assert.Equal(t, []string{"-v=1"}, args)
				return tc.err
			})
			assert.Equal(t, tc.code, code)
			assert.Equal(t, tc.stderr, stderr.String())
		})
	}
}

func TestReasonOfExitIsLastLine(t *testing.T) {
	var stderr bytes.Buffer
	var log io.Writer
	daemon.Main("watcher", nil, &stderr, func(_ context.Context, _ []string, w io.Writer) error {
		log = w
		_, err := io.WriteString(log, "a log line\n")
		return errors.Join(err, errors.New("no cluster"))
	})
	_, err := io.WriteString(log, "an abandoned goroutine\n")
	require.NoError(t, err)
	assert.Equal(t, "a log line\nwatcher: no cluster\n", stderr.String())
}

func TestSignalsCancelTheContext(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		code := daemon.Main("watcher", nil, io.Discard, func(ctx context.Context, _ []string, _ io.Writer) error {
			assert.NoError(t, syscall.Kill(syscall.Getpid(), sig))
			<-ctx.Done()
			return nil
		})
		assert.Zero(t, code)
	}
}

func TestStartIsLoggedWithEverySetting(t *testing.T) {
	var stderr bytes.Buffer
	o := &daemon.Options{}
	fs := flag.NewFlagSet("watcher", flag.ContinueOnError)
	o.AddFlags(fs)
	require.NoError(t, o.Parse(fs, []string{"--identity=me", "--metrics-bind-address=0"}, io.Discard))
	daemon.LogStart(daemon.WithLogger(t.Context(), &stderr, o), fs)
	var line struct {
		Msg, Program, Identity, Version, Commit string
		Flags                                   map[string]string
	}
	require.NoError(t, json.Unmarshal(stderr.Bytes(), &line), "one line of JSON")
	assert.Equal(t, "Started", line.Msg)
	assert.Equal(t, "watcher", line.Program)
	assert.Equal(t, version.Version, line.Version)
	assert.Equal(t, version.Commit(), line.Commit)
	assert.Equal(t, "me", line.Identity)
	assert.Equal(t, "0", line.Flags["metrics-bind-address"])
	assert.Equal(t, ":8081", line.Flags["health-probe-bind-address"], "a default, too")
}
