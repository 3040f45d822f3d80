package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"nodekeeper.dev/test/story"
	"nodekeeper.dev/internal/txn"
)

// describe returns what a line says of an event, and what the lines below it say.
func describe(e event) (text string, details []string) {
	name := e.obj.GetName()
	switch e.kind {
	case transactions:
		name = shortName(name)
		if kind := e.obj.GetLabels()[txn.TypeLabel]; kind != "" {
			name += "  " + txn.TypeLabel + "=" + kind
		}
		details = dataLines(e.data())
	case records:
		details = dataLines(e.data())
	case nodes:
		details = labelLines(e.obj.GetLabels())
	case locks:
		name += "  held by " + e.holder()
	}
	if e.typ == watch.Deleted {
		details = nil // what was in it was told when it came
	}
	return fmt.Sprintf("%-8s  %s", e.typ, name), details
}

// shortName abbreviates the name of a transaction.
func shortName(name string) string {
	hash, resourceVersion, ok := txn.SplitName(name)
	if !ok {
		return name
	}
	return hash[:8] + "…." + resourceVersion.String()
}

// labelLines is labels as kubectl prints them.
func labelLines(labels map[string]string) []string {
	return story.Wrap(entries(labels, func(key, value string) string { return key + "=" + value }), story.Width-story.TextColumn)
}

// dataLines is the data of a ConfigMap as YAML has it, several entries a line.
func dataLines(data map[string]string) []string {
	return story.Wrap(entries(data, func(key, value string) string {
		if strings.Trim(value, "0123456789") == "" {
			return fmt.Sprintf("%s: %q", key, value)
		}
		return key + ": " + value
	}), story.Width-story.TextColumn)
}

func entries(m map[string]string, format func(key, value string) string) []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, format(key, m[key]))
	}
	return all
}

// asEvent is an object that was read, so that it is shown like one that a watch delivered.
func asEvent(k kind, cm *corev1.ConfigMap) event {
	return event{at: time.Now(), kind: k, typ: "GET", obj: cm}
}

// showEvents prints events.
func showEvents(out *story.Screen, events ...event) {
	for _, e := range inOrder(events...) {
		text, details := describe(e)
		out.Say(e.at, string(e.kind), text, details...)
	}
}
