package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"nodekeeper.dev/internal/daemon/command/output"
	"nodekeeper.dev/internal/plugin/inspect"
)

// writeReplicas writes the versions of the replicas and the settings that differ, or all settings
// if wide is set.
func writeReplicas(w io.Writer, replicas []inspect.Replica, now time.Time, wide bool) {
	if len(replicas) == 0 {
		return
	}
	line := output.Lines(w)
	line("  Version", "%s", describeVersions(replicas, ""))
	for _, r := range replicas {
		if r.Silent() {
			line("  Silent", "%s, last heard %s ago", r.Name, duration.HumanDuration(r.Silence))
		}
	}
	for _, r := range replicas {
		if r.SettingsProblem != "" {
			line("  Settings", "of %s cannot be read: %s", r.Name, r.SettingsProblem)
		}
	}
	if names := inspect.WebhooksDiffer(replicas); len(names) > 0 {
		line("  Webhooks", "restore nothing while a processor differs from them in --%s", strings.Join(names, ", --"))
	}
	if wide {
		for i, r := range replicas {
			isLikeNext := len(r.Settings) > 0 && i+1 < len(replicas) && maps.Equal(r.Settings, replicas[i+1].Settings)
			writeReplica(w, r, now, !isLikeNext)
		}
		return
	}
	for _, name := range inspect.Differing(replicas) {
		line("  Differ in", "%s: %s", name, describeValues(replicas, name))
	}
}

// writeReplica writes a replica, with its settings unless the next one has the same.
func writeReplica(w io.Writer, r inspect.Replica, now time.Time, withSettings bool) {
	state := "not alive"
	switch {
	case r.IsAlive && r.IsStandby:
		state = "alive but not ready"
	case r.IsAlive:
		state = "alive"
	}
	if r.Heard != nil {
		state += ", last heard " + output.AgeOf(r.Heard, now) + " ago"
	}
	version := cmp.Or(r.Version, "unknown version")
	if !withSettings {
		_, _ = fmt.Fprintf(w, "  %s: %s, %s, settings as below\n", r.Name, state, version)
		return
	}
	_, _ = fmt.Fprintf(w, "  %s: %s, %s\n", r.Name, state, version)
	for _, name := range r.Settings.Names() {
		_, _ = fmt.Fprintf(w, "    %s=%s\n", name, r.Settings[name])
	}
}

// describeValues returns the values of a setting in live replicas, with the names of the replicas.
// It shortens long values.
func describeValues(replicas []inspect.Replica, name string) string {
	var values []string
	owners := map[string][]string{}
	for _, r := range replicas {
		value, ok := r.Settings[name]
		if !ok || !r.IsAlive {
			continue
		}
		if owners[value] == nil {
			values = append(values, value)
		}
		owners[value] = append(owners[value], r.Name)
	}
	for i, value := range values {
		values[i] = fmt.Sprintf("%s (%s)", shortened(value), strings.Join(owners[value], ", "))
	}
	return strings.Join(values, "; ")
}

// shortened returns a value, or the beginning of a long one.
func shortened(value string) string {
	const longest = 40
	if value == "" {
		return "none"
	}
	if len(value) <= longest {
		return value
	}
	return strings.ToValidUTF8(value[:longest], "") + "…"
}
