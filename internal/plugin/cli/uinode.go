package cli

import (
	"context"
	"maps"
	"slices"
	"strings"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/plugin/ui"
	"nodekeeper.dev/internal/preserve"
)

// uiSource answers what the page asks about one node, by live reads: somebody has selected it, or it has
// changed while it is selected.
type uiSource struct {
	*ui.Feed

	plugin  *plugin
	cluster *cluster
}

// uiNode is all of one node as the page shows it.
type uiNode struct {
	*shownNode

	// Summary says in one sentence how things are.
	Summary string `json:"summary"`
	// Compared is what is saved against what there is, the differences first.
	Compared []comparedLabel  `json:"compared"`
	Moments  []inspect.Moment `json:"moments"`
	// Waits say why what is pending is not applied yet, Notes what people must know of the rest.
	Waits []string `json:"waits"`
	Notes []string `json:"notes"`
}

// comparedLabel is a label, or an annotation or a taint that is kept like one.
type comparedLabel struct {
	inspect.LabelReason

	// Kind is label, annotation or taint.
	Kind string `json:"kind"`
	// Differs reports whether the node has it otherwise than it is saved. Why says why.
	Differs bool `json:"differs"`
}

// Node implements a part of [ui.Source].
func (s *uiSource) Node(ctx context.Context, name string) (any, error) {
	if _, err := nodeNames([]string{name}); err != nil {
		return nil, ui.ErrUnknownNode
	}
	c := *s.cluster // with the views of the servers that there are now
	servers, err := s.plugin.serve(ctx, &c, false)
	if err != nil {
		return nil, err
	}
	n, err := c.Node(ctx, name)
	if err != nil {
		return nil, err
	}
	if !n.Known() {
		return nil, ui.ErrUnknownNode
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
	servers.tell(&notes, forecastSettings, name)
	shown.Notes = append(strings.FieldsFunc(notes.String(), func(r rune) bool { return r == '\n' }), story.Unknown...)
	return shown, nil
}

// compareAll returns everything that is saved of a node, or that the node has, the differences first.
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
		live = preserve.NodeOf(n.Live).Labels
	}
	either := maps.Clone(saved)
	if either == nil {
		either = map[string]string{}
	}
	maps.Copy(either, live)
	for _, key := range slices.Sorted(maps.Keys(either)) {
		if !differing[key] {
			all = append(all, comparedLabel{LabelReason: inspect.LabelReason{Key: key, Saved: valueIn(saved, key), Live: valueIn(live, key)}})
		}
	}
	for i := range all {
		all[i].name()
	}
	return all
}

// name gives what is no label the name that people know it by.
func (l *comparedLabel) name() {
	l.Kind = "label"
	if annotation, ok := labels.AsAnnotation(l.Key); ok {
		l.Kind, l.Key = "annotation", annotation
	} else if taint, effect, ok := labels.AsTaint(l.Key); ok {
		l.Kind, l.Key = "taint", taint+":"+effect
	}
}

func valueIn(all map[string]string, key string) *string {
	if value, ok := all[key]; ok {
		return &value
	}
	return nil
}
