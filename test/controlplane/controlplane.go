package controlplane

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"nodekeeper.dev/test/ports"
)

const (
	// startTimeout is for one server. A kube-apiserver takes about five seconds; a machine that builds and tests at
	// the same time can take ten times as long.
	startTimeout = 3 * time.Minute
	// stopTimeout is for one server; after it the server is killed.
	stopTimeout = time.Minute
	// loggedLines is how much of the servers' output an error shows.
	loggedLines = 20
)

// Options configures a control plane. The zero value is suitable for tests.
type Options struct {
	// Dir is where all files go. It is created if it is missing, may not have been used before, and is kept by Stop.
	// Empty: a temporary directory that Stop removes.
	Dir string
	// APIServerArgs are flags of kube-apiserver, without the leading dashes. They replace the flag's value, if
	// envtest gives it one. Authorization is RBAC unless it is changed here.
	APIServerArgs map[string][]string
	// EtcdArgs are flags of etcd in the same form.
	EtcdArgs map[string][]string
	// Unguarded is for a container, which needs no shell then: the kernel ends the servers with the
	// container. Their process ids are not known, so they cannot be killed or sent signals.
	Unguarded bool
}

// ControlPlane is a running etcd and kube-apiserver. Its methods are not safe for concurrent use
// unless documented otherwise. Its fields do not change, and may be read concurrently.
type ControlPlane struct {
	// Config has admin rights and no client-side rate limit.
	Config *rest.Config
	// Kubeconfig is the path of a file with the same rights, for other programs.
	Kubeconfig string
	// Dir holds all files of this control plane; see the package comment.
	Dir string

	users     sync.Mutex
	temporary bool // Dir goes with the control plane
	env       *envtest.Environment
	guard     *guard
	log       *os.File
}

// Start starts etcd and kube-apiserver and waits until the API server is ready. The caller must
// call Stop.
func Start(opts Options) (*ControlPlane, error) {
	bin, err := Assets()
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{Dir: opts.Dir}
	if err := c.start(bin, opts); err != nil {
		err = fmt.Errorf("starting the control plane: %w%s", err, c.logTail())
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *ControlPlane) start(bin string, opts Options) error {
	if err := c.prepareDir(); err != nil {
		return err
	}
	if !opts.Unguarded {
		var err error
		if c.guard, err = startGuard(c.Dir, c.temporary); err != nil {
			return err
		}
	}
	if err := c.configure(bin, opts); err != nil {
		return err
	}
	var err error
	if c.Config, err = c.env.Start(); err != nil {
		return err
	}
	// Certificates for webhooks, in a directory that the guard does not know of. There are no webhooks.
	if err := c.env.WebhookInstallOptions.Cleanup(); err != nil {
		return err
	}
	c.Config.QPS = -1 // The default limit makes a fast test slow, and hides races.
	c.Kubeconfig = filepath.Join(c.Dir, "kubeconfig")
	return os.WriteFile(c.Kubeconfig, c.env.KubeConfig, 0o600)
}

// prepareDir makes the directories and the log.
func (c *ControlPlane) prepareDir() error {
	var err error
	if c.Dir == "" {
		c.temporary = true
		c.Dir, err = os.MkdirTemp("", "nodekeeper-controlplane-")
	} else if c.Dir, err = filepath.Abs(c.Dir); err == nil {
		err = os.MkdirAll(c.Dir, 0o700)
	}
	if err != nil {
		return err
	}
	for _, server := range []Server{Etcd, APIServer} {
		// Fail if it exists: the server would use the data of another control plane without its
		// certificates.
		if err := os.Mkdir(c.DataDir(server), 0o700); err != nil {
			return err
		}
	}
	c.log, err = os.OpenFile(filepath.Join(c.Dir, "servers.log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	return err
}

// configure describes to envtest what to start. All directories are ours, so that a server that is stopped finds its
// data and certificates when it is started again.
func (c *ControlPlane) configure(bin string, opts Options) error {
	paths := map[Server]string{}
	for _, server := range []Server{Etcd, APIServer} {
		paths[server] = filepath.Join(bin, string(server))
		if opts.Unguarded {
			continue
		}
		var err error
		if paths[server], err = writeLauncher(c.Dir, bin, server); err != nil {
			return err
		}
	}
	c.env = &envtest.Environment{
		UseExistingCluster:       new(false), // regardless of USE_EXISTING_CLUSTER
		ControlPlaneStartTimeout: startTimeout,
		ControlPlaneStopTimeout:  stopTimeout,
		ControlPlane: envtest.ControlPlane{
			Etcd:      &envtest.Etcd{Path: paths[Etcd], DataDir: c.DataDir(Etcd), Out: c.log, Err: c.log},
			APIServer: &envtest.APIServer{Path: paths[APIServer], CertDir: c.DataDir(APIServer), Out: c.log, Err: c.log},
		},
	}
	if err := c.address(); err != nil {
		return err
	}
	flags := c.env.ControlPlane.APIServer.Configure()
	// Without it a server that is stopped waits a minute for clients to end their watches.
	flags.Set("shutdown-send-retry-after", "true")
	for flag, values := range opts.APIServerArgs {
		flags.Set(flag, values...)
	}
	for flag, values := range opts.EtcdArgs {
		c.env.ControlPlane.Etcd.Configure().Set(flag, values...)
	}
	return nil
}

// address gives each server addresses that are still free when it starts again.
func (c *ControlPlane) address() error {
	var free [3]string
	for i := range free {
		var err error
		if free[i], err = ports.Address(); err != nil {
			return err
		}
	}
	etcd, apiServer := c.env.ControlPlane.Etcd, c.env.ControlPlane.APIServer
	etcd.URL = &url.URL{Scheme: "http", Host: free[0]}
	etcd.Configure().Set("listen-peer-urls", "http://"+free[1])
	host, port, err := net.SplitHostPort(free[2])
	apiServer.Address, apiServer.Port = host, port
	return err
}

// KubeconfigFor writes a kubeconfig of another user, authenticated by a client certificate, and returns its path. A
// user has the rights that RBAC objects give it or its groups, at first none; "system:serviceaccount:NS:NAME" acts as
// that ServiceAccount. It is safe for concurrent use.
func (c *ControlPlane) KubeconfigFor(user string, groups ...string) (path string, err error) {
	c.users.Lock() // envtest's authority counts its certificates
	defer c.users.Unlock()
	added, err := c.env.AddUser(envtest.User{Name: user, Groups: groups}, nil)
	if err != nil {
		return "", fmt.Errorf("adding user %q: %w", user, err)
	}
	content, err := added.KubeConfig()
	if err != nil {
		return "", fmt.Errorf("making the kubeconfig of user %q: %w", user, err)
	}
	// A user's name can hold what a path in $KUBECONFIG must not, so the file is not named after it.
	file, err := os.CreateTemp(c.Dir, "kubeconfig-*")
	if err != nil {
		return "", fmt.Errorf("writing the kubeconfig of user %q: %w", user, err)
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Close()); err != nil {
		return "", fmt.Errorf("writing the kubeconfig of user %q: %w", user, err)
	}
	return file.Name(), nil
}

// Stop stops both servers and waits until they have ended. A second call does nothing.
func (c *ControlPlane) Stop() error {
	var errs []error
	if c.env != nil {
		errs = append(errs, c.env.Stop())
	}
	if c.guard != nil { // Last: until here it was needed.
		errs = append(errs, c.guard.dismiss())
	}
	if c.log != nil {
		errs = append(errs, c.log.Close())
	}
	if c.temporary {
		errs = append(errs, os.RemoveAll(c.Dir))
	}
	c.env, c.guard, c.log = nil, nil, nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stopping the control plane: %w", err)
	}
	return nil
}

// logTail returns the last lines of the servers' logs, as a suffix for an error.
func (c *ControlPlane) logTail() string {
	if c.log == nil {
		return ""
	}
	content, err := os.ReadFile(c.log.Name())
	if err != nil || len(content) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return "\n" + strings.Join(lines[max(0, len(lines)-loggedLines):], "\n")
}
