package cli

import (
	"context"
	"maps"
	"slices"
	"strings"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/plugin/ui"
)

// uiSource provides the nodes that are open on the page, by live reads.
type uiSource struct {
	*ui.Feed

	plugin  *plugin
	cluster *cluster
}

// uiNode is one node on the page.
type uiNode struct {
	*shownNode

	// Summary describes the state in one sentence.
	Summary string `json:"summary"`
	// Compared compares the record with the Node, differences first.
	Compared []comparedLabel  `json:"compared"`
	Moments  []inspect.Moment `json:"moments"`
	// Waits explain why pending transactions are not applied yet. Notes are notes about the
	// settings.
	Waits []string `json:"waits"`
	Notes []string `json:"notes"`
}

// comparedLabel is a label, or a preserved annotation or taint.
type comparedLabel struct {
	inspect.LabelReason

	// Kind is label, annotation or taint.
	Kind string `json:"kind"`
	// Differs reports whether the node and the record differ. Why is the reason.
	Differs bool `json:"differs"`
}

// Node implements [ui.Source].
func (s *uiSource) Node(ctx context.Context, name string) (any, error) {
	if _, err := nodeNames([]string{name}); err != nil {
		return nil, ui.ErrNodeNotFound
	}
	c := *s.cluster // a copy, as serve sets the views
	servers, err := s.plugin.serve(ctx, &c, false)
	if err != nil {
		return nil, err
	}
	n, err := c.Node(ctx, name)
	if err != nil {
		return nil, err
	}
	if !n.Found() {
		return nil, ui.ErrNodeNotFound
	}
	policy := servers.policy(name)
	story, err := c.Story(ctx, n, policy)
	if err != nil {
		return nil, err
	}
	waiting, err := c.Waiting(ctx, n, servers.batchPeriod(name))
	if err != nil {
		return nil, err
	}
	shown := &uiNode{
		shownNode: newShownNode(n, policy), Summary: newExplained(n, story, policy).Summary, Compared: compareAll(n, policy),
		Moments: append([]inspect.Moment{}, story.Moments...), Waits: []string{},
	}
	shown.Waiting = waiting
	if waiting != nil {
		shown.Waits = append(shown.Waits, waitingTexts(waiting, c.Now())...)
	}
	var notes strings.Builder
	servers.warn(&notes, forecastSettings, name)
	shown.Notes = append(strings.FieldsFunc(notes.String(), func(r rune) bool { return r == '\n' }), story.Unknown...)
	return shown, nil
}

// compareAll returns all labels of the record and the Node, differences first.
func compareAll(n *inspect.Node, policy labels.Policy) []comparedLabel {
	all := []comparedLabel{}
	differing := map[string]bool{}
	for _, reason := range n.LabelReasons(policy) {
		differing[reason.Key] = true
		all = append(all, comparedLabel{LabelReason: reason, Differs: true})
	}
	saved, live := map[string]string{}, map[string]string{}
	if n.Saved.Record != nil {
		saved = n.Saved.Record.Labels
	}
	if n.Live != nil {
		live = n.Live.Labels
	}
	either := maps.Clone(saved)
	if either == nil {
		either = map[string]string{}
	}
	maps.Copy(either, live)
	for _, key := range slices.Sorted(maps.Keys(either)) {
		if !differing[key] {
			all = append(all, comparedLabel{LabelReason: inspect.LabelReason{Key: key, Saved: labels.ValueOf(saved, key), Live: labels.ValueOf(live, key)}})
		}
	}
	for i := range all {
		all[i].name()
	}
	return all
}

// name sets the kind, and the key without its encoding.
func (l *comparedLabel) name() {
	l.Kind = "label"
	if annotation, ok := labels.AsAnnotation(l.Key); ok {
		l.Kind, l.Key = "annotation", annotation
	} else if taint, effect, ok := labels.AsTaint(l.Key); ok {
		l.Kind, l.Key = "taint", taint+":"+effect
	}
}
