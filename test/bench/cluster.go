package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/internal/labels"
	"nodekeeper.dev/internal/ring"
	"nodekeeper.dev/test/controlplane"
	"nodekeeper.dev/test/ports"
	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/webhooks"
)

// The default namespaces of nodekeeper's programs.
const (
	transactionNamespace = "node-metadata-transactions"
	metadataNamespace    = "node-metadata"
)

const (
	// readyTimeout bounds the start of all programs, on a machine that may be busy.
	readyTimeout = time.Minute
	// stopTimeout exceeds the five seconds in which the programs must stop.
	stopTimeout = 10 * time.Second
)

// setup describes the nodes of a cluster and the configuration of nodekeeper.
type setup struct {
	// images is the number of images in the status of each node. A kubelet reports 50.
	images int
	// preserves reports whether the user sets a taint and an annotation on each node, and nodekeeper
	// preserves them.
	preserves bool
	// webhooks is the number of webhooks. gate reports whether they gate every returning node.
	webhooks int
	gate     bool
	// kubelets reports whether kubelets create the nodes.
	kubelets bool
}

// args returns the flags of a program.
func (s setup) args(program string) (all []string) {
	if s.preserves {
		all = append(all, "--preserve-taints=dedicated", "--preserve-annotations=example.com/*")
	}
	if program == "webhook" && s.gate {
		all = append(all, "--gate")
	}
	return all
}

// saved returns the saved labels of a node.
func (s setup) saved(m *member) map[string]string {
	if !s.preserves {
		return m.labels
	}
	all := maps.Clone(m.labels)
	all[labels.TaintKey("dedicated", string(corev1.TaintEffectNoSchedule))] = "gpu"
	all[labels.AnnotationKey("example.com/owner")] = "team-a"
	return all
}

// status returns the images that the kubelet of a node reports.
func (s setup) status() corev1.NodeStatus {
	var status corev1.NodeStatus
	for i := range s.images {
		name := fmt.Sprintf("registry.example.com/team-%d/image-%d", i%7, i)
		digest := fmt.Sprintf("%x", sha256.Sum256([]byte(name)))
		status.Images = append(status.Images, corev1.ContainerImage{Names: []string{name + "@sha256:" + digest, name + ":v1.0." + strconv.Itoa(i)}, SizeBytes: 1 << 28})
	}
	return status
}

// cluster is a control plane with nodekeeper's programs.
type cluster struct {
	plane *controlplane.ControlPlane
	api   client.WithWatch // without a cache
	site  *webhooks.Site   // nil without a webhook
	// balancer forwards requests of the API server to the webhooks. It is nil while none runs.
	balancer *balancer
	see      *observer

	// kubeconfig is the kubeconfig of the programs.
	kubeconfig string
	programs   []*programs.Program
	// started counts the programs by name, so that each gets a unique identity.
	started map[string]int
	// isMaimed reports whether a program was killed, so that its locks may stay for minutes.
	isMaimed bool

	setup    setup
	profiles profiles
	// profiled are the addresses of the programs' profiles, by identity.
	profiled map[string]string
	// fleet are the expected nodes, by name.
	fleet map[string]*member
	// created are the durations of the requests that created nodes.
	created durations
}

// openCluster starts a control plane without programs. The caller must close the result.
func openCluster(ctx context.Context, s setup) (*cluster, error) {
	plane, err := controlplane.Start(controlplane.Options{APIServerArgs: map[string][]string{
		"enable-admission-plugins": {"NodeRestriction"},
		// Otherwise it would renew its own Lease, which would count.
		"feature-gates": {"APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false"},
	}})
	if err != nil {
		return nil, err
	}
	c := &cluster{
		setup: s, plane: plane, kubeconfig: plane.Kubeconfig, started: map[string]int{},
		fleet: map[string]*member{}, profiled: map[string]string{},
	}
	if err := c.open(ctx); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *cluster) open(ctx context.Context) error {
	cfg := rest.CopyConfig(c.plane.Config)
	cfg.WarningHandler = rest.NoWarnings{}
	var err error
	if c.api, err = client.NewWithWatch(cfg, client.Options{}); err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	for _, name := range []string{transactionNamespace, metadataNamespace} {
		if err := c.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return fmt.Errorf("creating namespace %s: %w", name, err)
		}
	}
	if c.setup.webhooks > 0 {
		c.site = &webhooks.Site{Namespace: ring.DefaultNamespace, Name: "nodekeeper"}
		if err := c.site.Install(ctx, c.api); err != nil {
			return err
		}
	}
	if err := c.allowKubelets(ctx); err != nil {
		return err
	}
	c.see, err = observe(ctx, c.api)
	return err
}

// allowKubelets permits kubelets to create Nodes, as the Node authorizer does.
func (c *cluster) allowKubelets(ctx context.Context) error {
	err := c.api.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kubelets"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:nodes"}},
	})
	if err != nil {
		return fmt.Errorf("giving kubelets their rights: %w", err)
	}
	return nil
}

// startWebhooks starts the webhooks and waits until the API server calls them.
func (c *cluster) startWebhooks(ctx context.Context) error {
	addresses := make([]string, c.setup.webhooks)
	for i := range addresses {
		var err error
		if addresses[i], err = ports.Address(); err != nil {
			return err
		}
		if err := c.start("webhook", 1, append(c.site.Flags(), "--webhook-bind-address="+addresses[i])...); err != nil {
			return err
		}
	}
	var err error
	if c.balancer, err = balance(ctx, c.site.Address(), addresses); err != nil {
		return err
	}
	if err := c.awaitReady(ctx); err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, lookPeriod, readyTimeout, true, func(ctx context.Context) (bool, error) {
		return c.site.Answers(ctx, c.api, metadataNamespace)
	})
	if err != nil {
		return fmt.Errorf("waiting until the API server asks the webhook: %w", err)
	}
	return c.site.Forget(ctx, c.api, metadataNamespace)
}

// start starts replicas of a program, with optional further arguments.
func (c *cluster) start(program string, count int, args ...string) error {
	for range count {
		c.started[program]++
		identity := fmt.Sprintf("%s-%d", program, c.started[program])
		with := slices.Concat(c.setup.args(program), args)
		if c.started[program] == 1 {
			profiling, url, err := c.profiles.args()
			if err != nil {
				return err
			}
			if with = slices.Concat(with, profiling); url != "" {
				c.profiled[identity] = url
			}
		}
		p, err := programs.Start(program, identity, c.kubeconfig, with...)
		if err != nil {
			return err
		}
		c.programs = append(c.programs, p)
	}
	return nil
}

// replace kills programs (SIGKILL) and starts the same number with new identities.
func (c *cluster) replace(victims ...*programs.Program) error {
	c.isMaimed = true
	for _, p := range victims {
		if err := p.Kill(); err != nil {
			return err
		}
	}
	c.programs = slices.DeleteFunc(c.programs, func(p *programs.Program) bool { return slices.Contains(victims, p) })
	for _, p := range victims {
		if err := c.start(p.Name, 1); err != nil {
			return err
		}
	}
	return nil
}

// awaitReady waits until every program is ready.
func (c *cluster) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, p := range c.programs {
		if err := p.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// close stops everything that runs and waits for it.
func (c *cluster) close() error {
	err := programs.StopAll(c.programs, stopTimeout)
	if c.see != nil {
		c.see.stop()
	}
	return errors.Join(err, c.balancer.close(), c.plane.Stop())
}
