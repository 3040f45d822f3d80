package robustness

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nodekeeper.dev/test/faultproxy"
	"nodekeeper.dev/test/programs"
	"nodekeeper.dev/test/sabotage"
)

const (
	// A program that ends is restarted after minBackoff, doubling up to maxBackoff while it keeps
	// ending early. Kubernetes does the same with longer delays.
	minBackoff = 500 * time.Millisecond
	maxBackoff = 4 * time.Second
	// stopTimeout is the time in which a program must stop: the five seconds that it promises, plus
	// the time for which a busy machine may stall. Kubernetes kills a pod after 30 s.
	stopTimeout = 28 * time.Second
)

// process is one of the programs. It is restarted whenever it ends. It is safe for concurrent use.
type process struct {
	world         *world
	program, name string
	args          []string
	kubeconfig    string
	proxy         *faultproxy.Proxy
	// isAnchor: it is exempt from faults.
	isAnchor bool

	mu      sync.Mutex
	running *programs.Program // nil if it is down
	// held is the number of faults that keep it down.
	held int
	// pods is the number of identities so far: a new pod has a new one, a restarted container does
	// not.
	pods int
	// isKilled reports whether the test itself ended the program.
	isKilled bool
}

// String returns the name of the process.
func (p *process) String() string { return p.name }

// Proxy implements sabotage.Victim.
func (p *process) Proxy() *faultproxy.Proxy { return p.proxy }

// run keeps the program running until ctx is cancelled, and then ends it as Kubernetes does.
func (p *process) run(ctx context.Context) {
	backoff := minBackoff
	for ctx.Err() == nil {
		if p.isHeld() {
			sabotage.Wait(ctx, period)
			continue
		}
		began, identity := time.Now(), p.identity()
		p.live(ctx)
		if time.Since(began) > maxBackoff || p.identity() != identity { // a new pod has no backoff
			backoff = minBackoff
		}
		sabotage.Wait(ctx, backoff)
		backoff = min(2*backoff, maxBackoff)
	}
}

// live is one life of the program.
func (p *process) live(ctx context.Context) {
	args := slices.Concat([]string{"--metadata-namespace=" + metadata, "--membership-namespace=" + metadata}, p.args)
	if p.program != "webhook" {
		args = append(args, "--transaction-namespace="+transactions)
	}
	running, err := programs.Start(p.program, p.identity(), p.kubeconfig, args...)
	if err != nil {
		p.world.fail("starting %s: %v", p.name, err)
		return
	}
	p.set(running)
	defer p.set(nil)
	select {
	case <-running.Done():
	case <-ctx.Done():
		if err := running.Stop(stopTimeout); err != nil {
			p.world.fail("%v", err)
		}
	}
	p.assess(running)
}

// assess checks how a program ended: it must not panic, and the race detector, if enabled, must not
// find anything.
func (p *process) assess(ended *programs.Program) {
	output := ended.Output()
	p.world.keep(ended.Identity, output)
	for _, bad := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"} {
		if at := strings.Index(output, bad); at >= 0 {
			p.world.fail("%s: %s", ended.Identity, output[at:min(len(output), at+4000)])
		}
	}
	p.mu.Lock()
	isKilled := p.isKilled
	p.mu.Unlock()
	if ended.ExitCode() != 0 && !isKilled {
		lines := strings.Split(strings.TrimSpace(output), "\n")
		p.world.count(p.world.exits, reason(lines[len(lines)-1]))
	}
}

func (p *process) set(running *programs.Program) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running, p.isKilled = running, false
}

func (p *process) isHeld() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held > 0
}

func (p *process) identity() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%s-%d", p.name, p.pods)
}

// kill kills the program (kill -9) and keeps it down until release is called.
func (p *process) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held++
	p.isKilled = true
	if p.running == nil {
		return nil
	}
	return p.running.Kill()
}

// replace kills the program (kill -9). A new pod takes its place.
func (p *process) replace() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods++
	p.isKilled = true
	if p.running == nil {
		return nil
	}
	return p.running.Kill()
}

// terminate ends the program as Kubernetes does, and keeps it down until release is called.
func (p *process) terminate() error {
	p.mu.Lock()
	p.held++
	p.mu.Unlock()
	return p.signal(syscall.SIGTERM)
}

// release lets the program restart, as the next container of the pod or as a new pod.
func (p *process) release(asNewPod bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held--
	if asNewPod {
		p.pods++
	}
}

func (p *process) signal(sig os.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		return nil
	}
	return p.running.Signal(sig)
}

// freeze pauses the program, and thaw resumes it.
func (p *process) freeze() error { return p.signal(syscall.SIGSTOP) }

func (p *process) thaw() error { return p.signal(syscall.SIGCONT) }

// ready returns nil if the program runs and reports that it is ready.
func (p *process) ready(ctx context.Context) error {
	p.mu.Lock()
	running := p.running
	p.mu.Unlock()
	if running == nil {
		return fmt.Errorf("%s does not run", p.name)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return running.WaitReady(ctx)
}

// rights returns a role for the program and its binding, which faults revoke and grant again. The
// end-to-end tests check the minimal permissions.
func (p *process) rights() []client.Object {
	anything := []string{"*"}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: p.name},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"", "events.k8s.io", "coordination.k8s.io"}, Resources: []string{"nodes", "configmaps", "events", "leases", "namespaces"}, Verbs: anything},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: anything},
			{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"}, Verbs: anything},
		},
	}
	return []client.Object{role, p.binding()}
}

func (p *process) binding() *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: p.name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: p.name}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: p.name},
	}
}

// reason returns the constant start of an error, without the parts that vary.
func reason(line string) string {
	for _, differs := range []string{`"`, ",", "https://"} {
		line, _, _ = strings.Cut(line, differs)
	}
	return fmt.Sprintf("%.120s", strings.TrimSpace(line))
}
