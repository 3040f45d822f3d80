package settings

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
	"nodekeeper.dev/internal/nodeview/agents"
)

// Annotations of a membership Lease.
const (
	Annotation        = "nodekeeper.dev/settings"
	VersionAnnotation = "nodekeeper.dev/version"
	LateAnnotation    = "nodekeeper.dev/applied-late" // see [Late]
)

// LateAfter is how long after its due time a transaction counts as late. The end of a node, which
// is due after nine batch periods, is late by default before status calls it stuck.
const LateAfter = 10 * time.Second

// Late is when a processor last applied transactions late, by the clock that sets the renewTime of
// its Lease, and how late the latest of them was. It distinguishes a long queue that is being
// applied from one that is stuck, and from a node that others have overtaken.
type Late struct {
	At time.Time
	By time.Duration
}

const lateSeparator = ", late by "

// String returns the value of [LateAnnotation].
func (l Late) String() string {
	return l.At.UTC().Format(time.RFC3339) + lateSeparator + l.By.Round(time.Second).String()
}

// ParseLate is the inverse of [Late.String], to the second. It reports false for other text.
func ParseLate(text string) (l Late, ok bool) {
	at, by, _ := strings.Cut(text, lateSeparator)
	var err, byErr error
	l.At, err = time.Parse(time.RFC3339, at)
	l.By, byErr = time.ParseDuration(by)
	return l, err == nil && byErr == nil && l.By >= 0
}

// The settings, by the names of their flags. The first six belong to all programs, RecordUpdates
// to the watchers, the next three to the processors and the webhooks, the next three only to the
// processors, and the last two only to the webhooks.
const (
	MachineManagers = "machine-managers"
	IgnoreLabels    = "ignore-labels"
	SameMachine     = "same-machine-labels"
	NodeSelector    = "node-selector"
	Annotations     = "preserve-annotations"
	Taints          = "preserve-taints"
	RecordUpdates   = "record-updates"
	RestoreMode     = "restore-mode"
	LiveLabels      = "live-labels"
	Restricted      = "restricted-labels"
	SaveDelay       = "save-delay"
	Retention       = "retention"
	Protect         = "protect"
	Gate            = "gate"
	HoldBack        = "hold-back"
)

// Values of the flag --protect.
const (
	ProtectNone      = "none"
	ProtectFinalizer = "finalizer"
)

// DefaultSaveDelay covers the writes of a kubelet and of controllers to a node that has just
// returned. The delay is harmless, because the save is in the queue.
const DefaultSaveDelay = 5 * time.Second

// MaxBytes bounds the text of all settings. The annotations of an object are limited to 256 KiB,
// and every renewal of a Lease writes all of them.
const MaxBytes = 16 << 10

// Settings are the values of flags, by name. A missing name was not published.
type Settings map[string]string

// checks are the valid settings and their validation functions.
var checks = map[string]func(value string) error{
	MachineManagers: func(v string) error { _, err := nodeview.Parse(v, "", ""); return err },
	IgnoreLabels:    func(v string) error { _, err := nodeview.Parse("", v, ""); return err },
	SameMachine:     func(v string) error { _, err := labels.ParseMachineBound(v); return err },
	NodeSelector:    func(v string) error { _, err := nodeview.Parse("", "", v); return err },
	Annotations:     func(v string) error { _, err := nodeview.ParsePreserved(v, ""); return err },
	Taints:          func(v string) error { _, err := nodeview.ParsePreserved("", v); return err },
	RecordUpdates:   func(v string) error { _, err := strconv.ParseBool(v); return err },
	RestoreMode:     func(v string) error { _, err := labels.ParseMode(v); return err },
	LiveLabels:      func(v string) error { _, err := labels.ParsePatterns(v); return err },
	Restricted:      func(v string) error { _, err := labels.ParseRestrictedMode(v); return err },
	SaveDelay:       checkDuration,
	Retention:       checkDuration,
	Gate:            func(v string) error { _, err := strconv.ParseBool(v); return err },
	HoldBack:        func(v string) error { _, err := labels.ParsePatterns(v); return err },
	Protect: func(v string) error {
		if v != ProtectNone && v != ProtectFinalizer {
			return fmt.Errorf("unknown value %q: use %q or %q", v, ProtectNone, ProtectFinalizer)
		}
		return nil
	},
}

func checkDuration(value string) error {
	d, err := time.ParseDuration(value)
	if err == nil && d < 0 {
		err = errors.New("it is negative")
	}
	return err
}

// Defaults returns the defaults of the programs.
func Defaults() Settings {
	return Settings{
		MachineManagers: agents.Default, IgnoreLabels: labels.DefaultIgnored, SameMachine: labels.DefaultSameMachine, NodeSelector: "", Annotations: "", Taints: "", RecordUpdates: "true",
		RestoreMode: string(labels.Replace), LiveLabels: labels.DefaultLive, Restricted: string(labels.SameMachine),
		SaveDelay: DefaultSaveDelay.String(), Retention: "0s", Protect: ProtectNone, Gate: "false", HoldBack: "",
	}
}

// Of returns the settings among the flags of a program. Whitespace in a value, including line
// breaks, becomes one space.
func Of(fs *flag.FlagSet) Settings {
	s := Settings{}
	fs.VisitAll(func(f *flag.Flag) {
		if _, ok := checks[f.Name]; ok {
			s[f.Name] = strings.Join(strings.Fields(f.Value.String()), " ")
		}
	})
	return s
}

// Annotations returns the annotations that a replica of a version publishes. Settings that are
// larger than [MaxBytes] are omitted.
func (s Settings) Annotations(version string) map[string]string {
	published := map[string]string{VersionAnnotation: version}
	text, err := json.Marshal(map[string]string(s))
	if err == nil && len(text) <= MaxBytes {
		published[Annotation] = string(text)
	}
	return published
}

// Parse returns the settings that a replica has published, nil if none. If a known setting is
// invalid, it returns an error and no settings.
func Parse(annotations map[string]string) (Settings, error) {
	text, ok := annotations[Annotation]
	if !ok {
		return nil, nil //nolint:nilnil // a replica of a former release publishes none
	}
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("they have %d bytes, more than %d", len(text), MaxBytes)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		return nil, fmt.Errorf("they are not a JSON object: %w", err)
	}
	s := Settings{}
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		field, ok := fields[name]
		if !ok {
			continue
		}
		var value string
		if err := json.Unmarshal(field, &value); err != nil {
			return nil, fmt.Errorf("%s is not text", name)
		}
		if strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return nil, fmt.Errorf("%s has characters that cannot be shown", name)
		}
		if err := Check(name, value); err != nil {
			return nil, err
		}
		s[name] = value
	}
	return s, nil
}

var readableVersion = regexp.MustCompile(`^[0-9A-Za-z.+_-]{1,64}$`)

// Version returns the version that a replica has published, or "" if there is no valid one.
func Version(annotations map[string]string) string {
	if version := annotations[VersionAnnotation]; readableVersion.MatchString(version) {
		return version
	}
	return ""
}

// Check returns an error, which names the flag, unless the value of the named setting is valid.
func Check(name, value string) error {
	check, ok := checks[name]
	if !ok {
		return fmt.Errorf("unknown setting %q", name)
	}
	err := check(value)
	if err == nil || strings.HasPrefix(err.Error(), "--"+name) {
		return err
	}
	return fmt.Errorf("--%s: %w", name, err)
}

// With returns the settings, overridden by others.
func (s Settings) With(others Settings) Settings {
	all := maps.Clone(s)
	if all == nil {
		all = Settings{}
	}
	maps.Copy(all, others)
	return all
}

// Differing returns the names of the settings that both have, with different values, sorted.
func (s Settings) Differing(others Settings) []string {
	var names []string
	for _, name := range s.Names() {
		if other, isThere := others[name]; isThere && other != s[name] {
			names = append(names, name)
		}
	}
	return names
}

// Names returns the names of the settings, sorted.
func (s Settings) Names() []string { return slices.Sorted(maps.Keys(s)) }

// complete returns the settings with defaults for missing ones.
func (s Settings) complete() Settings { return Defaults().With(s) }

// View returns the view of a replica with these settings. The settings must be valid, like the
// result of [Parse].
func (s Settings) View() nodeview.View {
	all := s.complete()
	view, _ := nodeview.Parse(all[MachineManagers], all[IgnoreLabels], all[NodeSelector]) // each was validated
	view.MachineBound, _ = labels.ParseMachineBound(all[SameMachine])
	view.Preserved, _ = nodeview.ParsePreserved(all[Annotations], all[Taints])
	return view
}

// Policy returns the restore policy of a processor with these settings. The settings must be valid,
// like the result of [Parse].
func (s Settings) Policy() labels.Policy {
	all := s.complete()
	view := all.View()
	live, _ := labels.ParsePatterns(all[LiveLabels]) // it was validated
	return labels.Policy{Mode: labels.Mode(all[RestoreMode]), Live: live, Ignored: view.Ignored, Restricted: labels.RestrictedMode(all[Restricted]), MachineBound: view.MachineBound, Preserves: view.Preserved.Has}
}

// BatchPeriod returns how long a processor with these settings delays saves.
func (s Settings) BatchPeriod() time.Duration {
	period, _ := time.ParseDuration(s.complete()[SaveDelay]) // it was validated
	return period
}
