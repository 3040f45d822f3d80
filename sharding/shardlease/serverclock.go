package shardlease

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// ServerClock tracks the time of the API server, using the Date header of its responses. With it, a
// process that has just started can determine the age of a Lease independently of the local wall
// clock. The clocks of several API servers must agree within one lease duration. The zero value is
// ready to use. It is safe for concurrent use.
type ServerClock struct {
	mu   sync.Mutex
	date time.Time // of the last response
	at   time.Time // when the response arrived, by the local monotonic clock
}

// Wrap returns a transport whose responses set the clock. See rest.Config.Wrap of client-go.
func (c *ServerClock) Wrap(next http.RoundTripper) http.RoundTripper { return timed{next, c} }

type timed struct {
	next  http.RoundTripper
	clock *ServerClock
}

// RoundTrip forwards a request. A stream sets the clock when it begins.
func (t timed) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err == nil && resp.StatusCode < http.StatusMultipleChoices { // ignore responses of load balancers in place of the API server
		t.clock.set(date, time.Now())
	}
	return resp, nil
}

func (c *ServerClock) set(date, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.date, c.at = date, at
}

// Now returns the API server's time at the given local time, or zero if it is unknown. The result
// may be up to one second behind.
func (c *ServerClock) Now(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return time.Time{}
	}
	return c.date.Add(now.Sub(c.at))
}

// Since returns the time, by the local clock, from which to count the age of a Lease that this
// process sees for the first time: the Lease's [LastRenewal], but not later than now. If either is
// unknown, it returns now. Both LastRenewal and the Date header have whole seconds, so the Lease
// may be up to two seconds older.
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

// LastRenewal returns the second in which a Lease was last renewed, by the API server's clock: the
// time of the managedFields entry that owns spec.renewTime. Other clients' writes to other fields
// do not count. It returns zero if no entry owns the field.
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
