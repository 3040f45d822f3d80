package cli

import (
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/nodes"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/sharding/shardlease"
)

// cluster is the cluster of a command.
type cluster struct {
	inspect.Cluster

	config *rest.Config
	mapper meta.RESTMapper
}

// connect returns the cluster that the flags select. It sends no request.
func (p *plugin) connect() (*cluster, error) {
	for _, one := range []struct{ flag, namespace string }{
		{"transaction-namespace", p.transactionNamespace}, {"metadata-namespace", p.metadataNamespace}, {"membership-namespace", p.membershipNamespace},
	} {
		// A list without a namespace would cover all namespaces.
		if problems := apivalidation.ValidateNamespaceName(one.namespace, false); len(problems) > 0 {
			return nil, command.UsageError(fmt.Errorf("--%s: %q is not the name of a namespace", one.flag, one.namespace))
		}
	}
	if p.transactionNamespace == p.metadataNamespace {
		return nil, command.UsageError(fmt.Errorf("--transaction-namespace and --metadata-namespace are both %q: give two different ones", p.metadataNamespace))
	}
	config, err := p.RESTConfig()
	if err != nil {
		return nil, err
	}
	c := &cluster{config: config, mapper: newMapper()}
	clock := clusterClock(config) // before the first client
	direct, err := client.New(config, client.Options{Scheme: scheme.Scheme, Mapper: c.mapper})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	c.Cluster = inspect.Cluster{
		Client: direct, TransactionNamespace: p.transactionNamespace, MetadataNamespace: p.metadataNamespace, MembershipNamespace: p.membershipNamespace,
		Clock: clock,
	}
	return c, nil
}

// connectFor is connect for a command whose arguments are names of nodes: see nodeNames.
func (p *plugin) connectFor(args []string) (c *cluster, names []string, err error) {
	if names, err = nodeNames(args); err != nil {
		return nil, nil, err
	}
	c, err = p.connect()
	return c, names, err
}

// clusterClock returns a clock of the cluster, set by the responses to requests of this config. The
// local clock may be off by more than the seconds after which a replica counts as silent.
func clusterClock(config *rest.Config) func(time.Time) time.Time {
	clock := &shardlease.ServerClock{}
	config.Wrap(clock.Wrap)
	return nodes.OrLocal(clock.Now)
}

// newMapper maps all kinds that the plugin reads, so that it needs no discovery.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(eventsv1.SchemeGroupVersion.WithKind("Event"), meta.RESTScopeNamespace)
	mapper.Add(admissionregistrationv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"), meta.RESTScopeRoot)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	return mapper
}
