package servingcert

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// aboutToExpire is the remaining validity below which a replica is not ready. The certificate
// should have been replaced weeks before; a day leaves time to find out why it was not.
const aboutToExpire = 24 * time.Hour

// Config names the objects that hold the certificate, and the Service that it is for.
type Config struct {
	// Namespace is the namespace of the Secret and of the Service. Required.
	Namespace string
	// Secret is the name of the Secret, which must exist. Required.
	Secret string
	// WebhookConfiguration is the name of an existing MutatingWebhookConfiguration; the caBundle of
	// all of its webhooks is set. Required with Rotate unless Selects is set, otherwise ignored.
	WebhookConfiguration string
	// Selects, if set, selects any number of MutatingWebhookConfigurations instead. They may be
	// created and deleted at any time; [Certificate.Bundle] is the caBundle of new ones.
	Selects func(*admissionregistrationv1.MutatingWebhookConfiguration) bool
	// Service is the name of the Service at which the API server calls the webhook. Required with
	// Rotate unless Host is set. Without Rotate, only a certificate for this Service is served, or a
	// certificate for any name if Service is empty.
	Service string
	// Host, if set, is the name or IP address at which the API server calls the webhook, instead of
	// Service.
	Host string
	// Metrics is the prefix of the names of metrics. The default is "nodekeeper".
	Metrics string
	// Rotate makes the package write the Secret and caBundle. Otherwise something else must write
	// them, and the package only reads and serves the certificate.
	Rotate bool
}

// ByObject configures the manager's cache for [Certificate.Register]. Without it the cache requests
// all objects of these kinds, which the roles in the package comment do not permit.
func (cfg Config) ByObject() map[client.Object]cache.ByObject {
	one := func(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }
	watched := map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{cfg.Namespace: {FieldSelector: one(cfg.Secret)}}},
	}
	switch {
	case cfg.Rotate && cfg.Selects != nil:
		watched[&admissionregistrationv1.MutatingWebhookConfiguration{}] = cache.ByObject{}
	case cfg.Rotate:
		watched[&admissionregistrationv1.MutatingWebhookConfiguration{}] = cache.ByObject{Field: one(cfg.WebhookConfiguration)}
	}
	return watched
}

func (cfg Config) validate() error {
	switch {
	case cfg.Namespace == "" || cfg.Secret == "":
		return errors.New("the serving certificate needs the namespace and the name of its Secret")
	case cfg.Rotate && (cfg.WebhookConfiguration == "" && cfg.Selects == nil || cfg.Service == "" && cfg.Host == ""):
		return errors.New("rotating the serving certificate needs the names of the webhook configuration and of the Service")
	}
	return nil
}

// selects reports whether the caBundle of a configuration is set.
func (cfg Config) selects(w *admissionregistrationv1.MutatingWebhookConfiguration) bool {
	if cfg.Selects != nil {
		return cfg.Selects(w)
	}
	return w.Name == cfg.WebhookConfiguration
}

// serverName is the name that the API server verifies in a certificate.
func (cfg Config) serverName() string {
	if cfg.Host != "" {
		return cfg.Host
	}
	return cfg.Service + "." + cfg.Namespace + ".svc"
}

// names are the names in the certificates that this package issues.
func (cfg Config) names() []string {
	if cfg.Host != "" {
		return []string{cfg.Host}
	}
	return []string{cfg.serverName(), cfg.serverName() + ".cluster.local", cfg.Service + "." + cfg.Namespace}
}

// Certificate is the serving certificate of a webhook. Its methods are safe for concurrent use.
type Certificate struct {
	cfg    Config
	expiry *prometheus.Desc
	// served is nil if there is no certificate.
	served atomic.Pointer[tls.Certificate]
	// bundle contains the authorities in the Secret, in PEM, or is nil.
	bundle atomic.Pointer[[]byte]
	// problem is the error of the last attempt to read the Secret or to serve its certificate, or nil.
	problem atomic.Pointer[error]
}

var _ prometheus.Collector = (*Certificate)(nil)

// New returns a Certificate that does not serve anything yet. It reads the Secret once it is
// registered with a manager and that runs.
func New(cfg Config) (*Certificate, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Certificate{cfg: cfg, expiry: prometheus.NewDesc(
		cmp.Or(cfg.Metrics, "nodekeeper")+"_webhook_certificate_expiry_timestamp_seconds",
		"When the serving certificate of the webhook expires, in seconds since 1970; 0 while there is none.", nil, nil)}, nil
}

// GetCertificate implements the function of that name in [tls.Config]. If there is no certificate,
// the error gives the reason.
func (c *Certificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if served := c.served.Load(); served != nil {
		return served, nil
	}
	if problem := c.problem.Load(); problem != nil {
		return nil, fmt.Errorf("there is no serving certificate: %w", *problem)
	}
	return nil, errors.New("there is no serving certificate yet")
}

// Bundle returns the authorities in the Secret when it was last read, in PEM, or nil if there are
// none.
func (c *Certificate) Bundle() []byte {
	if bundle := c.bundle.Load(); bundle != nil {
		return *bundle
	}
	return nil
}

// Expires returns when the served certificate expires, or zero if there is none.
func (c *Certificate) Expires() time.Time {
	if served := c.served.Load(); served != nil {
		return served.Leaf.NotAfter
	}
	return time.Time{}
}

// Ready is a readiness check. It fails if there is no certificate, or if it is about to expire. It
// does not fail merely because the Secret has become unusable, since the previous certificate is
// still served.
func (c *Certificate) Ready(*http.Request) error {
	if _, err := c.GetCertificate(nil); err != nil {
		return err
	}
	expires := c.Expires()
	if time.Until(expires) > aboutToExpire {
		return nil
	}
	err := fmt.Errorf("the serving certificate is about to expire or has expired: it is valid until %s", expires.UTC().Format(time.RFC3339))
	if problem := c.problem.Load(); problem != nil {
		err = fmt.Errorf("%w: %w", err, *problem)
	}
	return err
}

// Describe describes the metric of [Certificate.Collect].
func (c *Certificate) Describe(ch chan<- *prometheus.Desc) { ch <- c.expiry }

// Collect collects the expiry of the certificate.
func (c *Certificate) Collect(ch chan<- prometheus.Metric) {
	value := 0.0
	if expires := c.Expires(); !expires.IsZero() {
		value = float64(expires.Unix())
	}
	ch <- prometheus.MustNewConstMetric(c.expiry, prometheus.GaugeValue, value)
}

// load serves the certificate in the Secret. If the Secret is unusable, the previous certificate is
// kept.
func (c *Certificate) load(s *corev1.Secret) error {
	if bundle := s.Data[authorityKey]; len(parseAuthorities(bundle)) > 0 {
		c.bundle.Store(&bundle)
	}
	pair, err := parsePair(s.Data)
	if err == nil && (c.cfg.Service != "" || c.cfg.Host != "") {
		err = pair.Leaf.VerifyHostname(c.cfg.serverName())
	}
	if err != nil {
		return fmt.Errorf("reading the certificate in Secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	c.served.Store(pair)
	return nil
}
