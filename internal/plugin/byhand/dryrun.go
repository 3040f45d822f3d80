package byhand

import "sigs.k8s.io/controller-runtime/pkg/client"

// DryRun selects whether a request stores anything.
type DryRun string

const (
	// DryRunNone stores the result of the request.
	DryRunNone DryRun = "none"
	// DryRunClient sends no write.
	DryRunClient DryRun = "client"
	// DryRunServer makes the API server validate the writes, and stores nothing.
	DryRunServer DryRun = "server"
)

// Dry reports whether nothing is stored.
func (d DryRun) Dry() bool { return d != DryRunNone }

// Writer returns the client for writes. It must not be used with DryRunClient.
func (d DryRun) Writer(c client.Client) client.Client {
	if d == DryRunServer {
		return client.NewDryRunClient(c)
	}
	return c
}
