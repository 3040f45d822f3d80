package servingcert

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// The keys of the Secret. All except ca.key are the keys that cert-manager uses.
const (
	authorityKey        = "ca.crt"
	authorityPrivateKey = "ca.key"
	certificateKey      = corev1.TLSCertKey
	privateKey          = corev1.TLSPrivateKeyKey
)

const (
	// authorityValidity is long because every API server must receive a replacement.
	authorityValidity = 10 * 365 * 24 * time.Hour
	// certificateValidity is short, so that operators of a cluster see at least one rotation before
	// they depend on it.
	certificateValidity = 90 * 24 * time.Hour
	// backdated is the tolerated difference of a verifier's clock that is behind the issuer's.
	backdated = time.Hour
)

// issued returns when a certificate of this package was issued.
func issued(c *x509.Certificate) time.Time { return c.NotBefore.Add(backdated) }

// issueAuthority returns a new certificate authority and its private key in PEM.
func issueAuthority(cfg Config, now time.Time) (*x509.Certificate, []byte, error) {
	return sign(&x509.Certificate{
		// The time makes authorities distinguishable in a bundle.
		Subject:               pkix.Name{CommonName: fmt.Sprintf("%s-ca@%d", cfg.serverName(), now.Unix())},
		NotAfter:              now.Add(authorityValidity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}, now, nil, nil)
}

// issueCertificate returns a new serving certificate and its private key in PEM.
func issueCertificate(cfg Config, now time.Time, authority *x509.Certificate, key crypto.Signer) (*x509.Certificate, []byte, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: cfg.serverName()},
		NotAfter:              now.Add(certificateValidity),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, name := range cfg.names() {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return sign(template, now, authority, key)
}

// sign completes a template with a new key and signs it: with the key of the authority, or
// self-signed if there is none.
func sign(template *x509.Certificate, now time.Time, authority *x509.Certificate, by crypto.Signer) (*x509.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	if authority == nil {
		authority, by = template, key
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, fmt.Errorf("making a serial number: %w", err)
	}
	template.NotBefore = now.Add(-backdated)
	der, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), by)
	if err != nil {
		return nil, nil, fmt.Errorf("signing the certificate of %s: %w", template.Subject.CommonName, err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the certificate of %s: %w", template.Subject.CommonName, err)
	}
	pem, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the key of %s: %w", template.Subject.CommonName, err)
	}
	return made, pem, nil
}

// parsePair returns the serving certificate in the data of a Secret.
func parsePair(data map[string][]byte) (*tls.Certificate, error) {
	for _, key := range []string{certificateKey, privateKey} {
		if len(bytes.TrimSpace(data[key])) == 0 {
			return nil, fmt.Errorf("it has no %s", key)
		}
	}
	pair, err := tls.X509KeyPair(data[certificateKey], data[privateKey])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", certificateKey, privateKey, err)
	}
	if pair.Leaf == nil { // if GODEBUG contains x509keypairleaf=0
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, fmt.Errorf("%s: %w", certificateKey, err)
		}
	}
	return &pair, nil
}

// parseAuthorities returns the authorities in a bundle, or none if it cannot be parsed.
func parseAuthorities(bundle []byte) []*x509.Certificate {
	found, err := cert.ParseCertsPEM(bundle)
	if err != nil {
		return nil
	}
	return found
}

// parseSigner returns the private key of an authority.
func parseSigner(authority *x509.Certificate, pem []byte) (crypto.Signer, error) {
	key, err := keyutil.ParsePrivateKeyPEM(pem)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key cannot sign")
	}
	public, ok := signer.Public().(interface {
		Equal(other crypto.PublicKey) bool
	})
	if !ok || !public.Equal(authority.PublicKey) {
		return nil, errors.New("the key is not that of the authority")
	}
	return signer, nil
}
