package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"nodekeeper.dev/internal/daemon"
	"nodekeeper.dev/internal/daemon/servingcert"
	"nodekeeper.dev/sharding/internal/policy"
	sharderwebhook "nodekeeper.dev/sharding/internal/webhook"
)

// webhookName is the name of the Service at which the API server calls the webhooks, and of the
// Secret with their certificate.
const webhookName = "sharder-webhook"

// authorityFile is the file in --webhook-cert-dir with the authorities that the API server must
// trust.
const authorityFile = "ca.crt"

// webhookOptions are the settings of the webhooks.
type webhookOptions struct {
	bindAddress, url, certDir string

	// bindHost and bindPort are the parts of bindAddress, and host is the host in url.
	bindHost string
	bindPort int
	host     string
}

func (o *webhookOptions) addFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.bindAddress, "webhook-bind-address", ":9443", "`address` on which the webhooks serve the API server, over TLS")
	fs.StringVar(&o.url, "webhook-url", "", "`URL` at which the API server calls the webhooks, such as https://10.0.0.1:9443, instead of the Service "+webhookName+" in --namespace (default none)")
	fs.StringVar(&o.certDir, "webhook-cert-dir", "", "`directory` with the files tls.crt, tls.key and "+authorityFile+", for example a mounted Secret of cert-manager; they are read again when they change. "+
		"By default the sharders issue and renew a certificate in the Secret "+webhookName+" in --namespace, which is created if it is missing (default none)")
}

func (o *webhookOptions) validate() error {
	host, port, err := net.SplitHostPort(o.bindAddress)
	if err == nil {
		o.bindHost = host
		o.bindPort, err = strconv.Atoi(port)
	}
	if err != nil {
		return fmt.Errorf("--webhook-bind-address %q: %w: use an address such as :9443", o.bindAddress, err)
	}
	if o.bindPort < 1 || o.bindPort > 65535 {
		return fmt.Errorf("--webhook-bind-address %q: give a port from 1 to 65535", o.bindAddress)
	}
	if o.url == "" {
		return nil
	}
	to, err := url.Parse(o.url)
	if err != nil {
		return fmt.Errorf("--webhook-url: %w", err)
	}
	if to.Scheme != "https" || to.Hostname() == "" || to.User != nil || to.RawQuery != "" || to.Fragment != "" {
		return fmt.Errorf("--webhook-url %q: use a URL such as https://10.0.0.1:9443", o.url)
	}
	o.host, o.url = to.Hostname(), strings.TrimSuffix(o.url, "/")
	return nil
}

func (o *webhookOptions) permissions(namespace string) []daemon.Permission {
	if o.certDir != "" {
		return nil
	}
	needed := daemon.Permissions(admissionregistrationv1.GroupName, "mutatingwebhookconfigurations", "", "patch")
	return append(needed, daemon.Named(webhookName, daemon.Permissions("", "secrets", namespace, "get", "list", "watch", "patch"))...)
}

// certificate returns the configuration of the certificate in the Secret.
func (o *webhookOptions) certificate(namespace string) servingcert.Config {
	return servingcert.Config{
		Namespace: namespace, Secret: webhookName, Service: webhookName, Host: o.host, Selects: policy.IsWebhooks, Rotate: true, Metrics: program,
	}
}

// serve makes the manager serve the webhooks, and returns how they are installed.
func (o *webhookOptions) serve(mgr manager.Manager, namespace string, rings *sharderwebhook.Rings, handler *sharderwebhook.Handler) (*policy.Webhooks, error) {
	installed := &policy.Webhooks{Endpoint: policy.Endpoint{URL: o.url, Service: webhookName}}
	options := webhook.Options{Host: o.bindHost, Port: o.bindPort, CertDir: o.certDir}
	options.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }}
	if o.certDir != "" {
		installed.Bundle = o.authorities()
	} else {
		certificate, err := o.keepCertificate(mgr, namespace)
		if err != nil {
			return nil, err
		}
		installed.Bundle, installed.Kept = certificate.Bundle, true
		options.TLSOpts = append(options.TLSOpts, func(c *tls.Config) { c.GetCertificate = certificate.GetCertificate })
	}
	if err := metrics.Registry.Register(handler.Metrics()); err != nil {
		return nil, err //nolint:wrapcheck // the error already names the metric
	}
	server := webhook.NewServer(options)
	server.Register(policy.WebhookPath, handler)
	return installed, errors.Join(rings.Register(mgr), mgr.AddReadyzCheck("rings", rings.Ready), mgr.Add(server))
}

// keepCertificate makes the manager keep the certificate in the Secret.
func (o *webhookOptions) keepCertificate(mgr manager.Manager, namespace string) (*servingcert.Certificate, error) {
	certificate, err := servingcert.New(o.certificate(namespace))
	if err != nil {
		return nil, err //nolint:wrapcheck // the error already names the missing part
	}
	err = errors.Join(metrics.Registry.Register(certificate), certificate.Register(mgr), mgr.AddReadyzCheck("certificate", certificate.Ready))
	return certificate, err
}

// authorities returns a function that returns the authorities in the directory of the certificate,
// or nil if there are none. While the file cannot be read, the last ones count.
func (o *webhookOptions) authorities() func() []byte {
	var last atomic.Pointer[[]byte]
	return func() []byte {
		bundle, err := os.ReadFile(filepath.Join(o.certDir, authorityFile))
		if known := last.Load(); err != nil && !errors.Is(err, os.ErrNotExist) && known != nil {
			return *known
		}
		last.Store(&bundle)
		return bundle
	}
}

// ensureSecret creates the Secret of the certificate if it does not exist. The manifests contain it,
// so that the sharder needs no permission to create Secrets.
func ensureSecret(ctx context.Context, c client.Client, namespace string) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: webhookName}}
	err := c.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	if !apierrors.IsNotFound(err) {
		return err //nolint:wrapcheck // the caller adds the context
	}
	return client.IgnoreAlreadyExists(c.Create(ctx, secret)) //nolint:wrapcheck // the caller adds the context
}
