package main

import (
	"context"
	"fmt"
)

const (
	keepHeading   = "Everything keeps running until Ctrl-C. In another terminal:"
	eventsHeading = "Events from now on"
)

// guide lists commands to try while everything keeps running. %[1]s is the path of the kubeconfig, %[2]s a node.
const guide = `
  export KUBECONFIG=%[1]s
  kubectl get nodes --show-labels
  kubectl get cm -n node-metadata-transactions -L nodekeeper.dev/type --watch
  kubectl get cm -n node-metadata
  kubectl get cm -n node-metadata %[2]s -o yaml
  kubectl get lease -n node-metadata-transactions --watch

To lose a node and bring it back:

  kubectl label node %[2]s colour=blue
  kubectl delete node %[2]s
  echo '{"apiVersion":"v1","kind":"Node","metadata":{"name":"%[2]s"}}' | kubectl create -f -
  kubectl get node %[2]s --show-labels

To lose a process:
`

// keepOpen keeps everything running until ctx is done, and prints the events of nodes, transactions and records.
func (s *stage) keepOpen(ctx context.Context) {
	s.out.Heading(keepHeading)
	s.out.Note(fmt.Sprintf(guide, s.plane.Kubeconfig, worker1))
	for _, p := range s.crew.Running() {
		s.out.Note(fmt.Sprintf("  kill -9 %d   # %s", p.PID(), p.Identity))
	}
	s.out.Heading(eventsHeading)
	shown := len(s.see.history())
	for {
		seen, more, err := s.see.now()
		for _, e := range seen[shown:] {
			if e.kind != locks { // they come and go with every transaction
				showEvents(s.out, e)
			}
		}
		shown = len(seen)
		if err != nil {
			s.out.Note(err.Error())
			more = nil // no more events are printed, but everything keeps running
		}
		select {
		case <-ctx.Done():
			return
		case <-more:
		}
	}
}
