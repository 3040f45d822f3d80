// Package ports finds free ports for servers that tests start and restart.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
)

const (
	// firstPort is above the ports of well-known services.
	firstPort = 10000
	// firstEphemeralPort is the default of Linux, for systems that do not report theirs.
	firstEphemeralPort = 32768
	// portAttempts bounds the number of ports that are tried. Most are free.
	portAttempts = 100
)

// given are the ports that this process has handed out.
var given sync.Map //nolint:gochecknoglobals // ports belong to the machine

// Free returns an unused port of 127.0.0.1 that is not ephemeral. From the ephemeral range the
// kernel takes the local ports of connections, and the ports of listeners on port 0. A server with
// such a port can find it in use when it restarts; a client that retries can even get the port that
// it connects to, and so connect to itself. Free is safe for concurrent use.
func Free() (int, error) {
	end := ephemeralStart()
	if end <= firstPort {
		return 0, fmt.Errorf("looking for a free port: the ephemeral ports begin at %d, and those below %d are left alone", end, firstPort)
	}
	var errs []error
	for range portAttempts {
		port := firstPort + rand.IntN(end-firstPort)
		if _, ok := given.LoadOrStore(port, true); ok {
			continue
		}
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("looking for a free port: %w", errors.Join(errs...))
}

// Address returns a loopback address with a port from [Free].
func Address() (string, error) {
	port, err := Free()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

// ephemeralStart returns the first port of the ephemeral range.
func ephemeralStart() int {
	first := 0
	content, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return firstEphemeralPort
	}
	if _, err := fmt.Sscan(string(content), &first); err != nil {
		return firstEphemeralPort
	}
	return first
}
