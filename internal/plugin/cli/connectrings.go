package cli

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

	"nodekeeper.dev/sharding/api/v1alpha1"
	"nodekeeper.dev/sharding/ringview"
)

// ringOptions are the settings of the sharder that a command about rings must know.
type ringOptions struct{ prefix, sharderNamespace string }

func (o *ringOptions) addRingFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.prefix, "label-prefix", string(v1alpha1.DefaultPrefix), "Prefix of sharding labels. Rings of --compat=timebertt have their own.")
	flags.StringVar(&o.sharderNamespace, "sharder-namespace", "sharder-system", "Namespace of the sharder, whose objects are not shared out by default.")
}

// connectRings returns the rings of the cluster that the flags name. It sends no request.
func (p *plugin) connectRings(o *ringOptions) (*ringview.Cluster, error) {
	if err := v1alpha1.Prefix(o.prefix).Validate(); err != nil {
		return nil, misused(fmt.Errorf("--label-prefix: %w", err))
	}
	config, err := p.restConfig()
	if err != nil {
		return nil, err
	}
	discovered, err := p.config.ToRESTMapper() // which asks when it is asked, and keeps what it learns as kubectl does
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, coordinationv1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(known); err != nil {
			return nil, fmt.Errorf("registering types: %w", err)
		}
	}
	mapper := meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{newRingMapper(), discovered}}
	direct, err := client.New(config, client.Options{Scheme: known, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return &ringview.Cluster{Client: direct, Mapper: discovered, Prefix: v1alpha1.Prefix(o.prefix), SharderNamespace: o.sharderNamespace}, nil
}

// newRingMapper knows what every command about rings reads, so that only the resource of an object is
// discovered.
func newRingMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion})
	mapper.Add(v1alpha1.GroupVersion.WithKind("ClusterRing"), meta.RESTScopeRoot)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	return mapper
}

// namespaceOf returns the namespace that a flag gives, or that of the kubeconfig's context.
func (p *plugin) namespaceOf(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	namespace, _, err := p.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the namespace of the context: %w", err)
	}
	return namespace, nil
}

// ringNames lists the rings, for completion.
func (p *plugin) ringNames(ctx context.Context, _ *cluster, add func(string)) error {
	c, err := p.connectRings(&ringOptions{prefix: string(v1alpha1.DefaultPrefix)})
	if err != nil {
		return err
	}
	all, err := c.Rings(ctx)
	for _, r := range all {
		add(r.Name)
	}
	return err //nolint:wrapcheck // completion is silent about it
}
