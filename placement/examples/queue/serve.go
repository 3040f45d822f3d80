package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

const (
	// maxBody bounds the messages of one request.
	maxBody = 16 << 20
	// endTimeout is how long requests have to end after SIGTERM.
	endTimeout = 5 * time.Second
)

// key is a partition of a queue.
type key struct {
	queue     string
	partition int
}

// partition is the state of a partition.
type partition struct {
	messages []string
	done     int // the number of messages that are done, and the offset of the next one
	epoch    int64
	last     record // the last one with the event done
}

// server keeps all queues. It answers after the log has what it has done, and it serves one request
// at a time.
type server struct {
	mu         sync.Mutex
	log        *logFile
	partitions map[key]*partition
	failed     error      // why the log could not be written: no request is served any more
	broken     chan error // the same, once
}

func newServer(dir string) (*server, error) {
	log, all, err := openLog(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	s := &server{log: log, partitions: map[key]*partition{}, broken: make(chan error, 1)}
	for _, r := range all {
		s.at(key{r.Queue, r.Partition}).apply(r)
	}
	return s, nil
}

// at returns a partition, which is empty if there was none.
func (s *server) at(k key) *partition {
	if s.partitions[k] == nil {
		s.partitions[k] = &partition{}
	}
	return s.partitions[k]
}

// apply changes the state as a record of the log has it.
func (p *partition) apply(r record) {
	p.epoch = max(p.epoch, r.Epoch)
	switch r.Event {
	case added:
		p.messages = append(p.messages, r.Message)
	case done:
		p.done, p.last = r.Offset+1, r
	}
}

// store writes records and applies them. If the log cannot be written, the state of its end is
// unknown, so the server refuses all further requests and ends, and reads the log when it starts
// again.
func (s *server) store(w http.ResponseWriter, p *partition, all ...record) (isStored bool) {
	if err := s.log.append(all...); err != nil {
		s.failed = err
		s.broken <- err // the first and only one
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return false
	}
	for _, r := range all {
		p.apply(r)
	}
	return true
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /log", s.serveLog)
	mux.HandleFunc("POST /queues/{queue}/{partition}", s.locked(s.add))
	mux.HandleFunc("GET /queues/{queue}/{partition}", s.locked(s.next))
	mux.HandleFunc("PUT /queues/{queue}/{partition}/{offset}", s.locked(s.finish))
	return mux
}

// locked returns a handler of requests for a partition. It has read the body when it takes the lock,
// so that a slow client holds up no other.
func (s *server) locked(handle func(http.ResponseWriter, *http.Request, key, *partition)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		number, err := strconv.ParseInt(r.PathValue("partition"), 10, 32)
		if err != nil || number < 0 {
			http.Error(w, "the partition must be a number from 0", http.StatusBadRequest)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.failed != nil {
			http.Error(w, s.failed.Error(), http.StatusInternalServerError)
			return
		}
		k := key{r.PathValue("queue"), int(number)}
		handle(w, r, k, s.at(k))
	}
}

// add adds each line of the body as a message.
func (s *server) add(w http.ResponseWriter, r *http.Request, k key, p *partition) {
	var all []record
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		all = append(all, record{Event: added, Queue: k.queue, Partition: k.partition, Offset: len(p.messages) + len(all), Message: lines.Text()})
	}
	if err := lines.Err(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if s.store(w, p, all...) {
		w.WriteHeader(http.StatusCreated)
	}
}

// next answers with the first message that is not done.
func (s *server) next(w http.ResponseWriter, r *http.Request, k key, p *partition) {
	owner, ok := s.fence(w, r, k, p)
	if !ok {
		return
	}
	if owner.Epoch > p.epoch {
		owner.Event, owner.Offset = owned, p.done
		if !s.store(w, p, owner) {
			return
		}
	}
	if p.done == len(p.messages) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(record{Offset: p.done, Message: p.messages[p.done]}) // else the worker asks again
}

// finish records that the owner is done with a message. It may be repeated if the answer was lost.
func (s *server) finish(w http.ResponseWriter, r *http.Request, k key, p *partition) {
	owner, ok := s.fence(w, r, k, p)
	if !ok {
		return
	}
	offset, err := strconv.Atoi(r.PathValue("offset"))
	if err != nil {
		http.Error(w, "the offset must be a number", http.StatusBadRequest)
		return
	}
	owner.Event, owner.Offset = done, offset
	switch {
	case owner == p.last:
	case offset != p.done || offset >= len(p.messages):
		http.Error(w, fmt.Sprintf("offset %d is not the next one, which is %d", offset, p.done), http.StatusConflict)
		return
	case !s.store(w, p, owner):
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// fence returns the caller, or refuses the request, and records that: the partition has had an owner
// with a higher epoch, so this one has lost it.
func (s *server) fence(w http.ResponseWriter, r *http.Request, k key, p *partition) (owner record, ok bool) {
	epoch, err := strconv.ParseInt(r.URL.Query().Get("epoch"), 10, 64)
	if err != nil {
		http.Error(w, "the epoch must be a number", http.StatusBadRequest)
		return record{}, false
	}
	owner = record{Queue: k.queue, Partition: k.partition, Epoch: epoch, Worker: r.URL.Query().Get("worker")}
	if epoch < p.epoch {
		owner.Event, owner.Offset, owner.Highest = refused, p.done, p.epoch
		if !s.store(w, p, owner) {
			return record{}, false
		}
		http.Error(w, fmt.Sprintf("epoch %d is lower than %d: another worker owns partition %d of %s", epoch, p.epoch, k.partition, k.queue), http.StatusConflict)
		return record{}, false
	}
	return owner, true
}

// serveLog answers with all of the log that is complete.
func (s *server) serveLog(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	size, err := s.log.size, s.failed
	s.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	http.ServeContent(w, r, "log.jsonl", time.Time{}, io.NewSectionReader(s.log.file, 0, size))
}

func serve(ctx context.Context, address, dir string, stderr io.Writer) error {
	s, err := newServer(dir)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address) //nolint:noctx // it does not wait
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	_, _ = fmt.Fprintln(stderr, "listening on", listener.Addr())
	h := &http.Server{Handler: s.handler(), ReadTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- h.Serve(listener) }()
	select {
	case err = <-served:
	case err = <-s.broken:
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return errors.Join(err, h.Shutdown(end), s.log.file.Close())
}
