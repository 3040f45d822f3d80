package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// balancer forwards connections to several addresses in turn, as a Service does.
type balancer struct {
	listener net.Listener
	to       []string
	running  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // nil if it is closed
}

// balance listens on an address. The caller must close the result.
func balance(ctx context.Context, address string, to []string) (*balancer, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("balancing: %w", err)
	}
	b := &balancer{listener: listener, to: to, conns: map[net.Conn]bool{}}
	b.running.Go(func() {
		for i := 0; ; i++ {
			conn, err := listener.Accept()
			if err != nil {
				return // it is closed
			}
			b.running.Go(func() { b.lead(ctx, conn, b.to[i%len(b.to)]) })
		}
	})
	return b, nil
}

// lead copies in both directions until either side ends.
func (b *balancer) lead(ctx context.Context, from net.Conn, address string) {
	defer b.forget(from)
	to, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil || !b.keep(from, to) {
		return
	}
	defer b.forget(to)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(from, to) // the API server gets an EOF, whatever the reason
		_ = from.Close()
	})
	_, _ = io.Copy(to, from)
	_ = to.Close()
	back.Wait()
}

// keep registers connections, so that close ends them. If the balancer is already closed, it closes
// them and returns false.
func (b *balancer) keep(conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range conns {
		if b.conns == nil {
			_ = conn.Close()
		} else {
			b.conns[conn] = true
		}
	}
	return b.conns != nil
}

func (b *balancer) forget(conn net.Conn) {
	_ = conn.Close() // it may already be closed
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, conn)
}

func (b *balancer) close() error {
	if b == nil {
		return nil
	}
	err := b.listener.Close()
	b.mu.Lock()
	for conn := range b.conns {
		err = errors.Join(err, conn.Close())
	}
	b.conns = nil
	b.mu.Unlock()
	b.running.Wait()
	return err
}
