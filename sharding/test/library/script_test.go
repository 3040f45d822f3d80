package library

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"nodekeeper.dev/sharding/api/v1alpha1"
)

// script is a shard that uses only what a shell script with kubectl or curl can do (see
// sharding/docs/other-languages.md): three kinds of requests, and nothing of the library.
type script struct {
	c        *cluster
	http     *http.Client
	name     string
	protocol string

	mu       sync.Mutex
	problems []string
}

// script starts a shard that ends with the test.
func (c *cluster) script(name, protocol string) *script {
	c.t.Helper()
	config := rest.CopyConfig(c.config) // the script runs in a pod of that name
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "script", Groups: []string{"system:masters"}, Extra: map[string][]string{"authentication.kubernetes.io/pod-name": {name}},
	}
	h, err := rest.HTTPClientFor(config)
	require.NoError(c.t, err)
	s := &script{c: c, http: h, name: name, protocol: protocol}
	s.send(c.t.Context(), http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/"+c.namespace+"/leases", fmt.Sprintf(
		`{"metadata":{"name":%q,"labels":{%q:%q},"annotations":{%q:%q}},"spec":{"holderIdentity":%q,"leaseDurationSeconds":15,"renewTime":%q}}`,
		name, prefix.RingLabel(), c.ring.Name, prefix.ProtocolAnnotation(), protocol, name, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")))
	ctx, stop := context.WithCancel(context.WithoutCancel(c.t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.run(ctx)
	}()
	c.t.Cleanup(func() {
		stop()
		<-ended
		assert.Empty(c.t, s.problems)
	})
	return s
}

// run renews the Lease every five seconds, and once a second releases the objects that the sharder
// wants to move.
func (s *script) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := 0; ; i++ {
		if i%5 == 0 {
			s.send(ctx, http.MethodPatch, "/apis/coordination.k8s.io/v1/namespaces/"+s.c.namespace+"/leases/"+s.name,
				`{"spec":{"renewTime":"`+time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")+`"}}`)
		}
		s.acknowledge(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// acknowledge releases the objects that the sharder wants to move.
func (s *script) acknowledge(ctx context.Context) {
	shard, drain := prefix.ShardLabel(s.c.ring.Name), prefix.DrainLabel(s.c.ring.Name)
	path := "/api/v1/namespaces/" + s.c.namespace + "/secrets"
	var list struct {
		Items []struct {
			Metadata struct{ Name, ResourceVersion string }
		}
	}
	if json.Unmarshal(s.send(ctx, http.MethodGet, path+"?labelSelector="+shard+"%3D"+s.name+","+drain, ""), &list) != nil {
		return
	}
	for _, o := range list.Items {
		patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"labels":{%q:null}}}`, o.Metadata.ResourceVersion, shard)
		if s.protocol == v1alpha1.Protocol1 {
			patch = fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"labels":{%q:null,%q:null}}}`, o.Metadata.ResourceVersion, shard, drain)
		}
		s.send(ctx, http.MethodPatch, path+"/"+o.Metadata.Name, patch)
	}
}

// send sends a request and returns the response.
func (s *script) send(ctx context.Context, method, path, body string) []byte {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(s.c.config.Host, "/")+path, bytes.NewBufferString(body))
	if err != nil {
		s.problem(err.Error())
		return nil
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := s.http.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			s.problem(err.Error())
		}
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode != http.StatusConflict || err != nil && ctx.Err() == nil {
		s.problem(fmt.Sprintf("%s %s: %d %s", method, path, resp.StatusCode, content))
	}
	return content
}

func (s *script) problem(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, text)
}

// TestScriptsAreShards covers R45 and the hand-over by both protocols: scripts share objects with a
// shard of the library.
func TestScriptsAreShards(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]string{"protocol 1": v1alpha1.Protocol1, "protocol 2": v1alpha1.Protocol2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.secrets(30)
			c.script("web-0", protocol)
			c.has(30)
			w := &work{}
			s := with(w)
			s.options.LeaveTimeout = patience
			r := c.replica("web-1", s)
			c.eventually(func(t *assert.CollectT) {
				c.isBalanced(t, "web-0", "web-1")
				assert.ElementsMatch(t, c.names("web-1"), w.names())
			}, "the script releases objects, and the other shard works on them")
			r.stop()
			require.NoError(t, r.wait())
			c.has(30)
		})
	}
}
