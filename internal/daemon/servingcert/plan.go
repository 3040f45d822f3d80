package servingcert

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
)

const (
	// renewAuthority is the remaining validity at which an authority is replaced. It exceeds the
	// validity of any certificate that the authority has signed.
	renewAuthority = 365 * 24 * time.Hour
	// renewCertificate is the remaining validity at which a certificate is replaced. It leaves a month
	// for reacting to alerts about failing rotations.
	renewCertificate = 30 * 24 * time.Hour
	// settling is the delay before a new authority signs while certificates of another one may be in
	// use. API servers receive a caBundle by a watch, most of them within milliseconds.
	settling = 5 * time.Second
	// overlap is the time for which previous authorities stay trusted once the Secret has a
	// certificate of the new one. Replicas receive it by a watch, within a second unless they are
	// disconnected from the API server.
	overlap = 10 * time.Minute
	// checkPeriod bounds the interval between two checks of the certificate's age.
	checkPeriod = time.Hour
	// maxPrevious bounds the size of a bundle if the Secret is damaged repeatedly.
	maxPrevious = 3
)

// step is one write to the cluster.
type step string

const (
	// nothing means that no write is needed.
	nothing step = "nothing"
	// replaceAuthority writes a new authority and its predecessors to the Secret.
	replaceAuthority step = "replace the authority"
	// trustAuthorities writes the Secret's authorities to caBundle.
	trustAuthorities step = "trust the authorities"
	// replaceCertificate writes a new certificate to the Secret.
	replaceCertificate step = "replace the certificate"
	// dropAuthorities removes the previous authorities from the Secret.
	dropAuthorities step = "drop the previous authorities"
)

// state is the usable part of both objects.
type state struct {
	names []string
	// authorities are the authorities in the Secret. The first one signs.
	authorities []*x509.Certificate
	// signer is the key of the first authority, or nil.
	signer crypto.Signer
	// pair is the serving certificate, or nil.
	pair *tls.Certificate
	// bundles are the caBundle of each webhook.
	bundles [][]byte
}

func stateOf(cfg Config, secret *corev1.Secret, webhooks []admissionregistrationv1.MutatingWebhook) *state {
	s := &state{names: cfg.names(), authorities: parseAuthorities(secret.Data[authorityKey])}
	if len(s.authorities) > 0 {
		s.signer, _ = parseSigner(s.authorities[0], secret.Data[authorityPrivateKey])
	}
	s.pair, _ = parsePair(secret.Data)
	for i := range webhooks {
		s.bundles = append(s.bundles, webhooks[i].ClientConfig.CABundle)
	}
	return s
}

// next returns the next step, or nothing and the delay until the next check. The order of the steps
// ensures that every certificate that a replica may serve is trusted, see the package comment.
func (s *state) next(now time.Time) (step, time.Duration) {
	if !s.canSign(now) {
		return replaceAuthority, 0
	}
	if !s.trusted() {
		return trustAuthorities, 0
	}
	signing, rotating := s.authorities[0], len(s.authorities) > 1
	renew := s.renewAt(now)
	if !now.Before(renew) {
		if settled := issued(signing).Add(settling); rotating && now.Before(settled) {
			return nothing, min(settled.Sub(now), settling)
		}
		return replaceCertificate, 0
	}
	due := renew
	if rotating {
		drop := issued(s.pair.Leaf).Add(overlap)
		if !now.Before(drop) {
			return dropAuthorities, 0
		}
		due = drop
	}
	return nothing, min(due.Sub(now), checkPeriod)
}

func (s *state) canSign(now time.Time) bool {
	if s.signer == nil {
		return false
	}
	ca := s.authorities[0]
	signs := ca.IsCA && (ca.KeyUsage == 0 || ca.KeyUsage&x509.KeyUsageCertSign != 0)
	return signs && !now.Before(ca.NotBefore) && now.Before(ca.NotAfter.Add(-renewAuthority))
}

// trusted reports whether every webhook has exactly the Secret's authorities.
func (s *state) trusted() bool {
	bundle, err := cert.EncodeCertificates(s.authorities...)
	if err != nil {
		return true // No write is needed, as the authorities were parsed from PEM.
	}
	return !slices.ContainsFunc(s.bundles, func(b []byte) bool { return !bytes.Equal(b, bundle) })
}

// renewAt returns when the certificate must be replaced. That is now if the current authority has
// not signed it, or if it does not cover all names.
func (s *state) renewAt(now time.Time) time.Time {
	if s.pair == nil {
		return now
	}
	leaf, roots := s.pair.Leaf, x509.NewCertPool()
	roots.AddCert(s.authorities[0])
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err != nil {
		return now
	}
	for _, name := range s.names {
		if leaf.VerifyHostname(name) != nil {
			return now
		}
	}
	return leaf.NotAfter.Add(-renewCertificate)
}

// withPrevious returns a new authority together with the authorities that are trusted now: those of
// the Secret, and those of caBundle in case the Secret was lost.
func (s *state) withPrevious(authority *x509.Certificate, now time.Time) []*x509.Certificate {
	trusted := slices.Clone(s.authorities)
	for _, bundle := range s.bundles {
		trusted = append(trusted, parseAuthorities(bundle)...)
	}
	all := []*x509.Certificate{authority}
	for _, ca := range trusted {
		usable := ca.IsCA && now.Before(ca.NotAfter)
		if usable && len(all) <= maxPrevious && !slices.ContainsFunc(all, ca.Equal) {
			all = append(all, ca)
		}
	}
	return all
}

// data returns the data that a step writes to the Secret.
func (s *state) data(cfg Config, do step, now time.Time) (map[string][]byte, error) {
	switch do {
	case replaceAuthority:
		authority, key, err := issueAuthority(cfg, now)
		if err != nil {
			return nil, err
		}
		bundle, err := cert.EncodeCertificates(s.withPrevious(authority, now)...)
		return map[string][]byte{authorityKey: bundle, authorityPrivateKey: key}, err
	case replaceCertificate:
		made, key, err := issueCertificate(cfg, now, s.authorities[0], s.signer)
		if err != nil {
			return nil, err
		}
		pem, err := cert.EncodeCertificates(made)
		return map[string][]byte{certificateKey: pem, privateKey: key}, err
	case dropAuthorities:
		bundle, err := cert.EncodeCertificates(s.authorities[0])
		return map[string][]byte{authorityKey: bundle}, err
	case nothing, trustAuthorities:
	}
	return nil, fmt.Errorf("to %s writes nothing to the Secret", do)
}
