package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/nodeview"
)

// policyFlags are the settings of the processors that say what a restore writes. The processors
// keep them nowhere in the cluster.
type policyFlags struct{ restoreMode, liveLabels, restricted string }

func (f *policyFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.restoreMode, "restore-mode", string(labels.Replace), "What the processors run with: replace or merge. It only changes what is foretold.")
	cmd.Flags().StringVar(&f.liveLabels, "live-labels", labels.DefaultLive, "What the processors run with. It only changes what is foretold.")
	cmd.Flag("live-labels").DefValue = "the processors' default"
	cmd.Flags().StringVar(&f.restricted, "restricted-labels", string(labels.SameMachine), "What the processors run with: keep, drop or same-machine. It only changes what is foretold.")
	completeFlag(cmd, "restricted-labels", string(labels.SameMachine), string(labels.Keep), string(labels.Drop))
	completeFlag(cmd, "restore-mode", string(labels.Replace), string(labels.Merge))
}

// policy returns what the flags say, for a plugin that ignores some labels.
func (f *policyFlags) policy(ignored string) (labels.Policy, error) {
	mode, err := labels.ParseMode(f.restoreMode)
	if err != nil {
		return labels.Policy{}, misused(fmt.Errorf("--restore-mode: %w", err))
	}
	live, err := labels.ParsePatterns(f.liveLabels)
	if err != nil {
		return labels.Policy{}, misused(fmt.Errorf("--live-labels: %w", err))
	}
	view, err := nodeview.Parse("", ignored, "")
	if err != nil {
		return labels.Policy{}, misused(err)
	}
	restricted, err := labels.ParseRestrictedMode(f.restricted)
	if err != nil {
		return labels.Policy{}, misused(fmt.Errorf("--restricted-labels: %w", err))
	}
	return labels.Policy{Mode: mode, Live: live, Ignored: view.Ignored, Restricted: restricted}, nil
}
