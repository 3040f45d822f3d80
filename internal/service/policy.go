package service

import (
	"flag"
	"fmt"

	"nodekeeper.dev/internal/labels"
)

// PolicyOptions are the settings of restores, for every program that decides about one. Use the
// same values for all of them.
type PolicyOptions struct {
	RestoreMode      string
	LiveLabels       string
	RestrictedLabels string
}

// AddFlags adds the flags of the options to fs, with their defaults.
func (o *PolicyOptions) AddFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.RestoreMode, "restore-mode", string(labels.Replace), "`mode` of restores: \"replace\" (the labels of a returned node become the saved ones) or \"merge\" (the saved ones are added)")
	fs.StringVar(&o.LiveLabels, "live-labels", labels.DefaultLive, "label `keys` and patterns (prefix*, domain/*suffix, */name, *.domain/*), separated by commas, whose values on the returned node win: by default the labels that a kubelet may set on its own Node; empty for none")
	fs.StringVar(&o.RestrictedLabels, "restricted-labels", string(labels.SameMachine),
		"`mode` of node-restriction.kubernetes.io/* and node-role.kubernetes.io/*: \"same-machine\" (restored only onto the machine that they were saved from), \"keep\" (restored like other labels) or \"drop\" (never restored)")
}

// Policy validates the settings and returns the resulting policy. An error is one line that names
// the flag.
func (o *PolicyOptions) Policy(common *Options) (labels.Policy, error) {
	mode, err := labels.ParseMode(o.RestoreMode)
	if err != nil {
		return labels.Policy{}, fmt.Errorf("--restore-mode: %w", err)
	}
	live, err := labels.ParsePatterns(o.LiveLabels)
	if err != nil {
		return labels.Policy{}, fmt.Errorf("--live-labels: %w", err)
	}
	restricted, err := labels.ParseRestrictedMode(o.RestrictedLabels)
	if err != nil {
		return labels.Policy{}, fmt.Errorf("--restricted-labels: %w", err)
	}
	view := common.View
	return labels.Policy{Mode: mode, Live: live, Ignored: view.Ignored, Restricted: restricted, MachineBound: view.MachineBound, Preserves: view.Preserved.Has}, nil
}
