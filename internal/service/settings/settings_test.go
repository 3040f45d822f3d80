package settings_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/service/settings"
)

func published(text string) map[string]string { return map[string]string{settings.Annotation: text} }

func TestPublishedFlagsRoundTrip(t *testing.T) {
	fs := flag.NewFlagSet("processor", flag.ContinueOnError)
	fs.String("live-labels", "", "")
	fs.Duration("save-delay", time.Minute, "")
	fs.String("kubeconfig", "secret", "")
	require.NoError(t, fs.Parse([]string{"--live-labels=a,\n  b*"}))
	annotations := settings.Of(fs).Annotations("v1.2.3")
	assert.JSONEq(t, `{"live-labels":"a, b*","save-delay":"1m0s"}`, annotations[settings.Annotation])
	assert.Equal(t, "v1.2.3", settings.Version(annotations))
	s, err := settings.Parse(annotations)
	require.NoError(t, err)
	assert.Equal(t, settings.Settings{settings.LiveLabels: "a, b*", settings.SaveDelay: "1m0s"}, s)
	assert.True(t, s.Policy().Live.Match("bx"))
	assert.Equal(t, labels.Replace, s.Policy().Mode, "missing settings have their defaults")
	assert.True(t, s.View().Ignored.Match("karpenter.sh/initialized"))
	assert.Equal(t, time.Minute, s.BatchPeriod())
}

func TestDifferingComparesCommonNames(t *testing.T) {
	own := settings.Settings{settings.RestoreMode: "merge", settings.LiveLabels: "a", settings.Gate: "true", settings.NodeSelector: ""}
	assert.Empty(t, own.Differing(nil))
	assert.Equal(t, []string{settings.NodeSelector, settings.RestoreMode}, own.Differing(settings.Settings{
		settings.RestoreMode: "replace", settings.LiveLabels: "a", settings.NodeSelector: "pool=batch", settings.SaveDelay: "1s",
	}))
}

func TestDefaultsAreValid(t *testing.T) {
	for name, value := range settings.Defaults() {
		require.NoError(t, settings.Check(name, value), name)
	}
	s, err := settings.Parse(settings.Defaults().Annotations("devel"))
	require.NoError(t, err)
	assert.Equal(t, settings.Defaults(), s)
	require.Error(t, settings.Check("workers", "3"))
}

func TestUnknownSettingsAreIgnored(t *testing.T) {
	s, err := settings.Parse(published(`{"restore-mode":"merge","taints":{"keep":true}}`))
	require.NoError(t, err)
	assert.Equal(t, settings.Settings{settings.RestoreMode: "merge"}, s)
	s, err = settings.Parse(map[string]string{"nodekeeper.dev/barrier-answers": "{}"})
	require.NoError(t, err)
	assert.Nil(t, s)
}

func TestInvalidSettingsAreRejected(t *testing.T) {
	for text, message := range map[string]string{
		"":                                "not a JSON object",
		"null and more":                   "not a JSON object",
		`["restore-mode"]`:                "not a JSON object",
		`{"restore-mode":"sideways"}`:     "restore-mode: ",
		`{"restore-mode":7}`:              "restore-mode is not text",
		`{"live-labels":"a*b*"}`:          "live-labels: ",
		`{"ignore-labels":"labels_*"}`:    "ignore-labels: ",
		`{"machine-managers":"*"}`:        "machine-managers: ",
		`{"node-selector":"a in b"}`:      "--node-selector ",
		`{"save-delay":"-5s"}`:            "save-delay: ",
		`{"retention":"soon"}`:            "retention: ",
		`{"protect":"always"}`:            "protect: ",
		`{"record-updates":"maybe"}`:      "record-updates: ",
		`{"live-labels":"\u001b[2Jgone"}`: "cannot be shown",
		`{"x":"` + strings.Repeat("x", settings.MaxBytes) + `"}`: "bytes, more than",
	} {
		s, err := settings.Parse(published(text))
		require.ErrorContains(t, err, message, text)
		assert.Nil(t, s)
	}
}

func TestTooManySettingsAreNotPublished(t *testing.T) {
	s := settings.Settings{settings.LiveLabels: strings.Repeat("x,", settings.MaxBytes)}
	assert.Equal(t, map[string]string{settings.VersionAnnotation: "v1"}, s.Annotations("v1"), "the Lease must be stored whatever the flags are")
}

func TestInvalidVersionIsNone(t *testing.T) {
	for _, text := range []string{"", "v1 and more", "\x1b[31mv1", strings.Repeat("1", 65)} {
		assert.Empty(t, settings.Version(map[string]string{settings.VersionAnnotation: text}))
	}
	assert.Equal(t, "v1.2.3-4-gabcdef0-dirty", settings.Version(map[string]string{settings.VersionAnnotation: "v1.2.3-4-gabcdef0-dirty"}))
}
