package servingcert

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// Failed work is retried after minBackoff, doubling up to maxBackoff.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 10 * time.Second
	// timeout ends requests that hang.
	timeout = 15 * time.Second
	// nextStep is the delay between two steps.
	nextStep = time.Millisecond
	// If another controller keeps undoing the writes of this one, there is a burst of writes, and then
	// one write per pause.
	burst = 10
	pause = time.Second
)

// rotator reads both objects, serves the certificate, and performs the steps that [state.next]
// returns.
type rotator struct {
	*Certificate

	// reader reads from the API server. The watches only trigger reads.
	reader client.Reader
	writer client.Writer
	writes *rate.Limiter
	// logged is the problem that was logged last. Only the controller's single worker uses it.
	logged string
}

// Register makes the manager maintain the certificate. Its cache must be configured by
// [Config.ByObject].
func (c *Certificate) Register(mgr manager.Manager) error {
	r := &rotator{
		Certificate: c, reader: mgr.GetAPIReader(), writer: mgr.GetClient(),
		writes: rate.NewLimiter(rate.Every(pause), burst),
	}
	keep, err := controller.New("serving-certificate", mgr, controller.Options{
		MaxConcurrentReconciles: 1,
		NeedLeaderElection:      new(false), // every replica serves, and conflicting writes fail
		SkipNameValidation:      new(true),  // one process may run several
		ReconciliationTimeout:   timeout,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minBackoff, maxBackoff),
		Reconciler:              reconcile.Func(r.reconcile),
	})
	if err != nil {
		return fmt.Errorf("creating the controller of the serving certificate: %w", err)
	}
	for _, watch := range c.sources(mgr) {
		if err := keep.Watch(watch); err != nil {
			return fmt.Errorf("watching the serving certificate: %w", err)
		}
	}
	return nil
}

// sources returns the sources of the controller's only request, which represents both objects.
func (c *Certificate) sources(mgr manager.Manager) []source.Source {
	work := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: c.cfg.Namespace, Name: c.cfg.Secret}}
	all := []source.Source{
		// There is no event for a missing object.
		source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			q.Add(work)
			return nil
		}),
		source.Kind(mgr.GetCache(), &corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(_ context.Context, s *corev1.Secret) []reconcile.Request {
				if s.Namespace != c.cfg.Namespace || s.Name != c.cfg.Secret {
					return nil
				}
				return []reconcile.Request{work}
			})),
	}
	if !c.cfg.Rotate {
		return all
	}
	return append(all, source.Kind(mgr.GetCache(), &admissionregistrationv1.MutatingWebhookConfiguration{},
		handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, w *admissionregistrationv1.MutatingWebhookConfiguration) []reconcile.Request {
			if !c.cfg.selects(w) {
				return nil
			}
			return []reconcile.Request{work}
		})))
}

func (r *rotator) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	// Read the configurations first, so that an older bundle never replaces a newer one: if the Secret
	// changes after it is read here, its new caBundle is written later still. The configuration has
	// then changed since it was read, and this write fails with a conflict.
	configs, configErr := r.configurations(ctx)
	var secret corev1.Secret
	if err := r.reader.Get(ctx, req.NamespacedName, &secret); err != nil {
		err = fmt.Errorf("reading Secret %s: %w", req, err)
		r.report(ctx, err)
		if apierrors.IsNotFound(err) {
			return reconcile.Result{RequeueAfter: checkPeriod}, nil // its creation triggers a request
		}
		return reconcile.Result{}, err
	}
	err := r.serve(ctx, &secret)
	r.report(ctx, err)
	if !r.cfg.Rotate {
		return reconcile.Result{RequeueAfter: checkPeriod}, nil // its next change triggers a request
	}
	if configErr != nil {
		r.setProblem(errors.Join(err, configErr))
		return reconcile.Result{}, configErr
	}
	after, rotateErr := r.rotate(ctx, &secret, configs)
	r.setProblem(errors.Join(err, rotateErr))
	return reconcile.Result{RequeueAfter: after}, rotateErr
}

// configurations returns the webhook configurations. If there are none, the API server calls no
// webhook, but the certificate is maintained nevertheless.
func (r *rotator) configurations(ctx context.Context) ([]admissionregistrationv1.MutatingWebhookConfiguration, error) {
	if !r.cfg.Rotate {
		return nil, nil
	}
	if r.cfg.Selects != nil {
		all := &admissionregistrationv1.MutatingWebhookConfigurationList{}
		if err := r.reader.List(ctx, all); err != nil {
			return nil, fmt.Errorf("listing MutatingWebhookConfigurations: %w", err)
		}
		return slices.DeleteFunc(all.Items, func(w admissionregistrationv1.MutatingWebhookConfiguration) bool { return !r.cfg.Selects(&w) }), nil
	}
	one := make([]admissionregistrationv1.MutatingWebhookConfiguration, 1)
	err := r.reader.Get(ctx, client.ObjectKey{Name: r.cfg.WebhookConfiguration}, &one[0])
	if apierrors.IsNotFound(err) {
		logf.FromContext(ctx).Info("Webhook configuration not found", "mutatingWebhookConfiguration", r.cfg.WebhookConfiguration)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading MutatingWebhookConfiguration %s: %w", r.cfg.WebhookConfiguration, err)
	}
	return one, nil
}

// serve serves the certificate in the Secret, if it is usable.
func (r *rotator) serve(ctx context.Context, secret *corev1.Secret) error {
	before := r.served.Load()
	if err := r.load(secret); err != nil {
		return err
	}
	if now := r.served.Load(); before == nil || !before.Leaf.Equal(now.Leaf) {
		logf.FromContext(ctx).Info("Served a new certificate", "secret", klog.KObj(secret), "expires", now.Leaf.NotAfter, "dnsNames", now.Leaf.DNSNames)
	}
	return nil
}

// report stores and logs the reason why the Secret cannot be served, once for each reason.
func (r *rotator) report(ctx context.Context, problem error) {
	r.setProblem(problem)
	if problem == nil {
		r.logged = ""
		return
	}
	if problem.Error() != r.logged {
		r.logged = problem.Error()
		logf.FromContext(ctx).Info("Found no certificate to serve", "reason", r.logged, "servesAnother", r.served.Load() != nil)
	}
}

// setProblem stores the problem that [Certificate.Ready] reports, or nil.
func (r *rotator) setProblem(problem error) {
	if problem == nil {
		r.problem.Store(nil)
		return
	}
	r.problem.Store(&problem)
}

// rotate performs the next step, and returns the delay until the next check.
func (r *rotator) rotate(ctx context.Context, secret *corev1.Secret, configs []admissionregistrationv1.MutatingWebhookConfiguration) (time.Duration, error) {
	now, log := time.Now(), logf.FromContext(ctx)
	var webhooks []admissionregistrationv1.MutatingWebhook
	for i := range configs {
		webhooks = append(webhooks, configs[i].Webhooks...)
	}
	s := stateOf(r.cfg, secret, webhooks)
	do, after := s.next(now)
	if do == nothing {
		return after, nil
	}
	if !r.writes.Allow() {
		return pause, nil
	}
	err := r.take(ctx, do, s, secret, configs, now)
	if apierrors.IsConflict(err) { // another replica or a user was first: read its result next
		log.V(1).Info("Another client updated the object first", "step", do)
		return nextStep, nil
	}
	if err != nil {
		return 0, fmt.Errorf("keeping the serving certificate: next is to %s: %w", do, err)
	}
	log.Info("Rotated the serving certificate", "step", do)
	return nextStep, nil
}

// take performs a step by conditional writes.
func (r *rotator) take(
	ctx context.Context, do step, s *state, secret *corev1.Secret, configs []admissionregistrationv1.MutatingWebhookConfiguration, now time.Time,
) error {
	if do == trustAuthorities {
		for i := range configs {
			if err := r.writeBundle(ctx, &configs[i], s.authorities); client.IgnoreNotFound(err) != nil { // deleted meanwhile
				return err
			}
		}
		return nil
	}
	data, err := s.data(r.cfg, do, now)
	if err != nil {
		return err
	}
	changed := secret.DeepCopy()
	if changed.Data == nil {
		changed.Data = map[string][]byte{}
	}
	maps.Copy(changed.Data, data)
	return r.writer.Patch(ctx, changed, client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{}))
}

func (r *rotator) writeBundle(ctx context.Context, config *admissionregistrationv1.MutatingWebhookConfiguration, authorities []*x509.Certificate) error {
	bundle, err := cert.EncodeCertificates(authorities...)
	if err != nil {
		return fmt.Errorf("encoding the authorities: %w", err)
	}
	changed := config.DeepCopy()
	for i := range changed.Webhooks {
		changed.Webhooks[i].ClientConfig.CABundle = bundle
	}
	if equality.Semantic.DeepEqual(config.Webhooks, changed.Webhooks) {
		return nil
	}
	// A strategic merge patch contains only the caBundle of each webhook: an update would drop fields
	// that only a newer API server has.
	return r.writer.Patch(ctx, changed, client.StrategicMergeFrom(config, client.MergeFromWithOptimisticLock{}))
}
