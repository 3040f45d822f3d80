package servingcert

import (
	"crypto/x509"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
)

const simulatedDay = 24 * time.Hour

// cluster simulates a Secret and a configuration at any time, without an API server.
type cluster struct {
	t      *testing.T
	now    time.Time
	cfg    Config
	secret corev1.Secret
	hooks  []admissionregistrationv1.MutatingWebhook
	taken  map[step]int
	// served is the certificate that replicas serve.
	served *x509.Certificate
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{
		t: t, now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), cfg: Config{Namespace: "ns", Secret: "s", Service: "w", Rotate: true},
		hooks: make([]admissionregistrationv1.MutatingWebhook, 2), taken: map[step]int{},
	}
}

// run performs the steps that are due, and returns the delay until the next one.
func (c *cluster) run() time.Duration {
	c.t.Helper()
	for range 10 {
		s := stateOf(c.cfg, &c.secret, c.hooks)
		do, wait := s.next(c.now)
		if do == nothing {
			require.Positive(c.t, wait)
			return wait
		}
		require.Zero(c.t, wait)
		c.taken[do]++
		c.take(s, do)
		c.check()
	}
	require.Fail(c.t, "there is always something to do")
	return 0
}

func (c *cluster) take(s *state, do step) {
	c.t.Helper()
	if do == trustAuthorities {
		for i := range c.hooks {
			bundle, err := cert.EncodeCertificates(s.authorities...)
			require.NoError(c.t, err)
			c.hooks[i].ClientConfig.CABundle = bundle
		}
		return
	}
	data, err := s.data(c.cfg, do, c.now)
	require.NoError(c.t, err)
	if c.secret.Data == nil {
		c.secret.Data = map[string][]byte{}
	}
	maps.Copy(c.secret.Data, data)
}

// check checks that the previous certificate is still trusted, and then that the new one is.
func (c *cluster) check() {
	c.t.Helper()
	c.verify()
	if pair, err := parsePair(c.secret.Data); err == nil {
		c.served = pair.Leaf
	}
	c.verify()
}

func (c *cluster) verify() {
	c.t.Helper()
	if c.served == nil {
		return
	}
	for i := range c.hooks {
		roots := x509.NewCertPool()
		require.True(c.t, roots.AppendCertsFromPEM(c.hooks[i].ClientConfig.CABundle))
		_, err := c.served.Verify(x509.VerifyOptions{Roots: roots, DNSName: "w.ns.svc", CurrentTime: c.now})
		require.NoError(c.t, err)
	}
}

func (c *cluster) authorities() []*x509.Certificate {
	return parseAuthorities(c.secret.Data[authorityKey])
}

func TestForDecadesEveryCertificateIsTrustedAndReplacedInTime(t *testing.T) {
	c := newCluster(t)
	for end := c.now.AddDate(20, 0, 0); c.now.Before(end); {
		wait := c.run()
		require.LessOrEqual(t, wait, checkPeriod)
		require.GreaterOrEqual(t, c.served.NotAfter.Sub(c.now), renewCertificate-checkPeriod)
		if len(c.authorities()) == 1 { // no step is due for long, so that decades do not take a check every hour
			due := stateOf(c.cfg, &c.secret, c.hooks).renewAt(c.now).Sub(c.now)
			wait = max(wait, min(due, 20*simulatedDay))
		}
		c.now = c.now.Add(wait)
	}
	assert.Equal(t, 3, c.taken[replaceAuthority], "nine years each")
	assert.Equal(t, 2, c.taken[dropAuthorities])
	assert.Equal(t, 5, c.taken[trustAuthorities])
	assert.InDelta(t, 20*365/60, c.taken[replaceCertificate], 5)
}

func TestALostAuthorityIsDistrustedSoonAfterItIsReplaced(t *testing.T) {
	c := newCluster(t)
	c.run()
	lost := c.authorities()[0]
	c.now = c.now.Add(simulatedDay)

	c.secret.Data = nil
	wait := c.run()
	assert.Equal(t, settling, wait, "the new authority signs before it is trusted everywhere")
	assert.NotContains(t, c.secret.Data, certificateKey)
	require.Len(t, c.authorities(), 2)
	assert.True(t, lost.Equal(c.authorities()[1]))

	c.now = c.now.Add(wait)
	wait = c.run()
	assert.Contains(t, c.secret.Data, certificateKey)
	assert.Equal(t, overlap, wait)
	require.Len(t, c.authorities(), 2)

	c.now = c.now.Add(wait)
	wait = c.run()
	require.Len(t, c.authorities(), 1)
	assert.False(t, lost.Equal(c.authorities()[0]))
	assert.Equal(t, checkPeriod, wait)
}

func TestABundleIsBoundedHoweverOftenTheSecretIsSpoiled(t *testing.T) {
	c := newCluster(t)
	for range 10 {
		c.secret.Data, c.served = nil, nil
		c.run()
		c.now = c.now.Add(time.Second)
	}
	assert.Len(t, c.authorities(), 1+maxPrevious)
}

func TestACertificateThatCannotBeVerifiedIsReplaced(t *testing.T) {
	for name, spoil := range map[string]func(c *cluster){
		"of another Service":   func(c *cluster) { c.cfg.Service = "other" },
		"of another authority": func(c *cluster) { c.secret.Data = with(c, newFilled(c.t), certificateKey, privateKey) },
		"its key is another's": func(c *cluster) { c.secret.Data = with(c, newFilled(c.t), privateKey) },
		"garbage":              func(c *cluster) { c.secret.Data[certificateKey] = []byte("garbage") },
		"expired":              func(c *cluster) { c.now = c.now.Add(certificateValidity + time.Hour) },
		"not valid yet":        func(c *cluster) { c.now = c.now.Add(-2 * backdated) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newFilled(t)
			before := string(c.secret.Data[certificateKey])
			spoil(c)
			s := stateOf(c.cfg, &c.secret, c.hooks)
			do, _ := s.next(c.now)
			if name == "not valid yet" { // the authority is not valid yet, either
				require.Equal(t, replaceAuthority, do)
				return
			}
			require.Equal(t, replaceCertificate, do)
			c.take(s, do)
			assert.NotEqual(t, before, string(c.secret.Data[certificateKey]))
			do, _ = stateOf(c.cfg, &c.secret, c.hooks).next(c.now)
			assert.Equal(t, nothing, do)
		})
	}
}

func newFilled(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	c.run()
	return c
}

// with returns the data of a cluster, with the values of the other for the given keys.
func with(c, other *cluster, keys ...string) map[string][]byte {
	data := maps.Clone(c.secret.Data)
	for _, key := range keys {
		data[key] = other.secret.Data[key]
	}
	return data
}
