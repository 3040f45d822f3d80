package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/internal/ringview"
)

// connect returns the rings of the cluster that the flags select. It sends no request.
func (p *plugin) connect() (*ringview.Cluster, error) {
	if err := v1alpha1.Prefix(p.prefix).Validate(); err != nil {
		return nil, command.UsageError(fmt.Errorf("--label-prefix: %w", err))
	}
	config, err := p.RESTConfig()
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the file and the problem
	}
	discovered, err := p.Connection.ToRESTMapper() // discovers on first use, and shares kubectl's cache
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, coordinationv1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering types: %w", err)
		}
	}
	mapper := meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{staticMapper(), discovered}}
	direct, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return &ringview.Cluster{Client: direct, Mapper: discovered, Prefix: v1alpha1.Prefix(p.prefix), SharderNamespace: p.sharderNamespace}, nil
}

// staticMapper maps the kinds that every command reads, so that only the resource of an object needs
// discovery.
func staticMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion})
	mapper.Add(v1alpha1.GroupVersion.WithKind("ClusterRing"), meta.RESTScopeRoot)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	return mapper
}

// completeRing completes one name of a ring.
func (p *plugin) completeRing() cobra.CompletionFunc {
	return command.CompleteNames(1, ringPrefix, func(ctx context.Context, add func(string)) error {
		c, err := p.connect()
		if err != nil {
			return err
		}
		rings, err := c.Rings(ctx)
		for _, r := range rings {
			add(r.Name)
		}
		return err //nolint:wrapcheck // completion reports no errors
	})
}
