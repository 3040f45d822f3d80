package crds

import "nodekeeper.dev/test/ports"

// WebhookFlags returns flags of a sharder that serves its webhook on a free port of this machine. They
// have no effect on an API server with admission policies.
func WebhookFlags() ([]string, error) {
	address, err := ports.Address()
	if err != nil {
		return nil, err
	}
	return []string{"--webhook-bind-address=" + address, "--webhook-url=https://" + address}, nil
}
