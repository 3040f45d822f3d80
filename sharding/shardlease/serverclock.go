package shardlease

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// ServerClock knows the time of the API server by the Date header of its answers. A process that has
// just started thus knows how old a Lease is, whatever its own clock says. The clocks of several API
// servers must agree within a lease duration. The zero value knows nothing yet. It is safe for
// concurrent use.
type ServerClock struct {
	mu   sync.Mutex
	date time.Time // of the last answer
	at   time.Time // when it came, by the local monotonic clock
}

// Wrap returns a transport whose answers tell the time, see rest.Config.Wrap of client-go.
func (c *ServerClock) Wrap(next http.RoundTripper) http.RoundTripper { return timed{next, c} }

type timed struct {
	next  http.RoundTripper
	clock *ServerClock
}

// RoundTrip passes a request on. A stream tells the time as it begins.
func (t timed) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err == nil && resp.StatusCode < http.StatusMultipleChoices { // what a load balancer says of an API server that is away does not count
		t.clock.set(date, time.Now())
	}
	return resp, nil
}

func (c *ServerClock) set(date, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.date, c.at = date, at
}

// Now returns the time of the API server at a local time, zero if it is not known. It may be up to a second
// late.
func (c *ServerClock) Now(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return time.Time{}
	}
	return c.date.Add(now.Sub(c.at))
}

// Since returns the time from which to count how long a Lease was not renewed that was not seen before,
// by the local clock: that of its [LastRenewal], which the API server has stored, and at the latest
// now. Both that time and the Date header have whole seconds, so the Lease is up to two seconds older.
func (c *ServerClock) Since(l *coordinationv1.Lease, now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	renewed := LastRenewal(l)
	if c.at.IsZero() || renewed.IsZero() {
		return now
	}
	age := c.date.Add(now.Sub(c.at)).Sub(renewed.Add(truncation))
	return now.Add(-max(age, 0))
}

// LastRenewal returns the second in which a Lease was last renewed, by the clock of the API server, or
// zero if the Lease does not say: the time of the managedFields entry that owns its renewTime. What
// others write on the Lease does not count.
func LastRenewal(l *coordinationv1.Lease) time.Time {
	var last time.Time
	for _, entry := range l.ManagedFields {
		if entry.Time == nil || entry.FieldsV1 == nil || !entry.Time.After(last) {
			continue
		}
		var fields struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			continue
		}
		if _, owns := fields.Spec["f:renewTime"]; owns {
			last = entry.Time.Time
		}
	}
	return last
}
