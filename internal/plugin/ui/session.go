package ui

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"sync"
	"time"
)

const (
	// sessionLifetime bounds the validity of a cookie and of the streams that it opened: a working
	// day.
	sessionLifetime = 12 * time.Hour
	// maxSessions bounds the valid cookies. A new one replaces the oldest.
	maxSessions = 32
	// tokenParameter is the query parameter with the token of a link.
	tokenParameter = "token"
)

// digest is the stored form of a secret.
type digest [sha256.Size]byte

// sessions admits requests that have a cookie which was exchanged for a token. Each token is valid
// for one exchange, which creates the next token, so there is always exactly one. It is safe for
// concurrent use.
type sessions struct {
	// cookie is the name of the cookie, which differs between processes: browsers share cookies
	// among all ports of a host, and a user may run several servers.
	cookie string

	mu     sync.Mutex
	token  string
	grants []grant // oldest first
}

type grant struct {
	cookie digest
	at     time.Time // without monotonic clock, which may stop while the machine sleeps
}

func newSessions() *sessions {
	id := sha256.Sum256([]byte(rand.Text()))
	return &sessions{cookie: "nodekeeper-" + hex.EncodeToString(id[:4]), token: newSecret()}
}

// newSecret returns 260 random bits.
func newSecret() string { return rand.Text() + rand.Text() }

// unused returns the token, which is not used yet.
func (s *sessions) unused() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token
}

// exchange returns a cookie for a token, and false if the token is wrong or used.
func (s *sessions) exchange(token string) (*http.Cookie, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	offered, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(s.token))
	if subtle.ConstantTimeCompare(offered[:], want[:]) != 1 {
		return nil, false
	}
	s.token = newSecret()
	value := newSecret()
	s.grants = append(s.grants, grant{sha256.Sum256([]byte(value)), time.Now().Round(0)})
	s.grants = s.grants[max(0, len(s.grants)-maxSessions):]
	return &http.Cookie{Name: s.cookie, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}, true //nolint:gosec // loopback has no TLS
}

// admits reports whether a request has a valid cookie.
func (s *sessions) admits(r *http.Request) bool { return time.Now().Before(s.end(r)) }

// end returns when the cookie of a request expires, or the zero time if the cookie is unknown.
func (s *sessions) end(r *http.Request) time.Time {
	c, err := r.Cookie(s.cookie)
	if err != nil {
		return time.Time{}
	}
	offered := sha256.Sum256([]byte(c.Value))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.grants {
		if subtle.ConstantTimeCompare(offered[:], s.grants[i].cookie[:]) == 1 {
			return s.grants[i].at.Add(sessionLifetime)
		}
	}
	return time.Time{}
}
