package cli

import (
	"context"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/plugin/byhand"
)

// names completes the names of objects from these sources, at most limit of them; 0 means any number.
func (p *plugin) names(limit int, sources ...func(context.Context, *cluster, func(string)) error) cobra.CompletionFunc {
	return command.CompleteNames(limit, nodePrefix, func(ctx context.Context, add func(string)) error {
		c, err := p.connect()
		if err != nil {
			return err
		}
		for _, source := range sources {
			if err := source(ctx, c, add); err != nil {
				return err
			}
		}
		return nil
	})
}

// liveNames lists the nodes of the cluster.
func liveNames(ctx context.Context, c *cluster, add func(string)) error {
	return c.Nodes().Each(ctx, func(n *metav1.PartialObjectMetadata) error {
		add(n.Name)
		return nil
	})
}

// recordNames lists the nodes that have a record.
func recordNames(ctx context.Context, c *cluster, add func(string)) error {
	return c.Records().EachName(ctx, add)
}

// transactionNames lists the queue by the names that retry and discard accept.
func transactionNames(ctx context.Context, c *cluster, add func(string)) error {
	return c.Queue().Each(ctx, func(cm *corev1.ConfigMap) error {
		add(byhand.ShortName(cm))
		return nil
	})
}
