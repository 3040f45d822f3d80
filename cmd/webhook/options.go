package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/daemon/servingcert"
	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/service"
	"nodekeeper.dev/internal/webhook/admission"
)

// options are the settings of a webhook.
type options struct {
	service.Options

	restores      service.PolicyOptions
	holdBack      string
	gate          bool
	bindAddress   string
	namespace     string
	secret        string
	service       string
	configuration string
	rotate        bool

	heldBack labels.Patterns
	host     string
	port     int
}

func (o *options) addFlags(fs *flag.FlagSet) {
	o.AddFlags(fs)
	o.restores.AddFlags(fs)
	fs.StringVar(&o.holdBack, "hold-back", "", "`keys` of labels and annotations, prefix* and *.domain/* patterns, separated by commas, that a policy of yours refuses in requests that create Nodes: "+
		"the webhook leaves them to the processors. A node that has one gets the startup taint until they are there (default none)")
	fs.BoolVar(&o.gate, "gate", false, "give every node that has a record the startup taint nodekeeper.dev/restoring:NoSchedule, until a processor has restored its labels, or has confirmed those that the webhook restored")
	fs.StringVar(&o.bindAddress, "webhook-bind-address", ":9443", "`address` on which the webhooks serve the API server, over TLS")
	fs.StringVar(&o.namespace, "service-namespace", "nodekeeper-system", "`namespace` of the Service and of the Secret with the certificate")
	fs.StringVar(&o.service, "service", "webhook", "`name` of the Service that the API server calls for the webhooks: the certificate is for it")
	fs.StringVar(&o.secret, "certificate-secret", "webhook-certificate", "`name` of the Secret that holds the certificate; it must exist, and may be empty")
	fs.StringVar(&o.configuration, "webhook-configuration", "nodekeeper", "`name` of the MutatingWebhookConfiguration, which gets the CA; the default names are those of deploy/components/admission")
	fs.BoolVar(&o.rotate, "rotate-certificate", true, "issue and renew the certificate; false if something else does, such as cert-manager")
}

// policy validates the webhook's own settings and returns the policy of restores.
func (o *options) policy() (labels.Policy, error) {
	host, port, err := net.SplitHostPort(o.bindAddress)
	if err == nil {
		o.host = host
		o.port, err = strconv.Atoi(port)
	}
	if err != nil {
		return labels.Policy{}, fmt.Errorf("--webhook-bind-address %q: %w: give an address as :9443", o.bindAddress, err)
	}
	if o.port < 1 || o.port > 65535 {
		return labels.Policy{}, fmt.Errorf("--webhook-bind-address %q: give a port from 1 to 65535", o.bindAddress)
	}
	if o.heldBack, err = labels.ParsePatterns(o.holdBack); err != nil {
		return labels.Policy{}, fmt.Errorf("--hold-back: %w", err)
	}
	if strings.Contains(o.holdBack, ":") {
		return labels.Policy{}, fmt.Errorf("--hold-back %q: no key of a label or an annotation has a colon; write the keys as they are on the Node", o.holdBack)
	}
	for name, value := range map[string]string{
		"service-namespace": o.namespace, "service": o.service, "certificate-secret": o.secret, "webhook-configuration": o.configuration,
	} {
		if value == "" {
			return labels.Policy{}, errors.New("--" + name + " is empty: give a name")
		}
	}
	return o.restores.Policy(&o.Options)
}

// cache configures the cache, which holds the records, the settings of the processors, and the
// objects that the certificate needs.
func (o *options) cache() cache.Options {
	watched := o.certificate().ByObject()
	maps.Copy(watched, admission.LeasesOfProcessors(o.MembershipNamespace))
	watched[&corev1.ConfigMap{}] = cache.ByObject{Namespaces: map[string]cache.Config{o.MetadataNamespace: {}}}
	return cache.Options{ByObject: watched}
}

// certificate returns the configuration of the serving certificate.
func (o *options) certificate() servingcert.Config {
	return servingcert.Config{
		Namespace: o.namespace, Secret: o.secret, WebhookConfiguration: o.configuration, Service: o.service, Rotate: o.rotate,
	}
}

func (o *options) permissions() []daemon.Permission {
	needed := daemon.Permissions("", "configmaps", o.MetadataNamespace, "list", "watch")
	needed = append(needed, service.RingPermissions(&o.Options)...)
	needed = append(needed, daemon.Named(o.secret, daemon.Permissions("", "secrets", o.namespace, "get", "list", "watch"))...)
	if o.rotate {
		needed = append(needed, daemon.Named(o.secret, daemon.Permissions("", "secrets", o.namespace, "patch"))...)
		needed = append(needed, daemon.Named(o.configuration,
			daemon.Permissions("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "get", "list", "watch", "patch"))...)
	}
	return needed
}
