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
	// sessionLifetime bounds how long a cookie is good for, and how long a stream lasts that was opened
	// with it: a working day.
	sessionLifetime = 12 * time.Hour
	// maxSessions bounds the cookies that are good at a time. The oldest one gives way.
	maxSessions = 32
	// tokenParameter is the query parameter of a link that has the token.
	tokenParameter = "token"
)

// digest is what is kept of a secret.
type digest [sha256.Size]byte

// sessions says who may read: whoever holds a cookie that was given for a token. A token is good for one
// cookie. The next token is made when one is used, so there is always just one. It is safe for
// concurrent use.
type sessions struct {
	// cookie is the name of the cookie. It is another one in each process: browsers share cookies among
	// all ports of a host, and a user may have several servers.
	cookie string

	mu    sync.Mutex
	token string
	given []given // oldest first
}

type given struct {
	cookie digest
	at     time.Time // by the wall clock: the monotonic one may stand still while the machine sleeps
}

func newSessions() *sessions {
	id := sha256.Sum256([]byte(rand.Text()))
	return &sessions{cookie: "nodekeeper-" + hex.EncodeToString(id[:4]), token: newSecret()}
}

// newSecret returns 260 random bits.
func newSecret() string { return rand.Text() + rand.Text() }

// unused returns the token that is not used yet.
func (s *sessions) unused() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token
}

// exchange returns the cookie for a token, and false if the token is wrong or was used.
func (s *sessions) exchange(token string) (*http.Cookie, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	offered, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(s.token))
	if subtle.ConstantTimeCompare(offered[:], want[:]) != 1 {
		return nil, false
	}
	s.token = newSecret()
	value := newSecret()
	s.given = append(s.given, given{sha256.Sum256([]byte(value)), time.Now().Round(0)})
	s.given = s.given[max(0, len(s.given)-maxSessions):]
	return &http.Cookie{Name: s.cookie, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode}, true //nolint:gosec // loopback has no TLS
}

// admits reports whether a request holds a cookie that was given and is good.
func (s *sessions) admits(r *http.Request) bool { return time.Now().Before(s.end(r)) }

// end returns when the cookie that a request holds ceases to be good, and the zero time if it was
// not given.
func (s *sessions) end(r *http.Request) time.Time {
	c, err := r.Cookie(s.cookie)
	if err != nil {
		return time.Time{}
	}
	offered := sha256.Sum256([]byte(c.Value))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.given {
		if subtle.ConstantTimeCompare(offered[:], s.given[i].cookie[:]) == 1 {
			return s.given[i].at.Add(sessionLifetime)
		}
	}
	return time.Time{}
}
