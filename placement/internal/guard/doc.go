// Package guard runs a program once for each virtual replica, in a process of its own, the guard,
// which is a child of the agent. It makes sure that no program outlives the right to work:
//
//   - The agent reports each renewal of its Lease. Without one in time, the guard ends all programs,
//     also while the agent hangs or is stopped by a signal.
//   - If the agent ends, however that happens, the guard kills all programs at once. A new guard of
//     the same pod waits until the former one has ended.
//   - If the guard is killed, the kernel kills the programs, and the agent kills what they have
//     started. If the guard does not answer when programs must end, the agent kills it.
//
// A program is a process group. It is ended by SIGTERM to the group, and by SIGKILL five seconds
// later. If the program ends by itself, the rest of its group is ended in the same way. Processes
// that leave the group are not ended.
//
// [Start] starts a guard, and [Guard.Work] makes it an agent.Worker. [Main] is the process. Both
// speak JSON, one object a line, through the standard input and output of the process.
package guard

import "time"

// request is a line from the agent to the guard.
type request struct {
	// Op is start, stop, extend or ping.
	Op string `json:"op"`
	// ID identifies a program; each start has a new one.
	ID int64 `json:"id,omitempty"`
	// Env is what the program's environment has in addition.
	Env []string `json:"env,omitempty"`
	// Until is until when programs may run, by CLOCK_BOOTTIME.
	Until time.Duration `json:"until,omitempty"`
}

// The operations of requests.
const (
	opStart  = "start"
	opStop   = "stop"
	opExtend = "extend"
	opPing   = "ping"
)

// response is a line from the guard to the agent.
type response struct {
	// Event is up, ready, ended or pong.
	Event string `json:"event"`
	ID    int64  `json:"id,omitempty"`
	// Message is why a program has ended.
	Message string `json:"message,omitempty"`
}

// The events of responses.
const (
	eventUp    = "up"
	eventReady = "ready"
	eventEnded = "ended"
	eventPong  = "pong"
)

// The first arguments after [Command]: of a guard process, and of one that becomes a program.
const (
	modeGuard  = "run"
	modeLaunch = "launch"
)
