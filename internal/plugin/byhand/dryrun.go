package byhand

import "sigs.k8s.io/controller-runtime/pkg/client"

// DryRun says what a request stores.
type DryRun string

const (
	// DryRunNone stores what is asked for.
	DryRunNone DryRun = "none"
	// DryRunClient sends no write.
	DryRunClient DryRun = "client"
	// DryRunServer has the API server check the writes, and stores nothing.
	DryRunServer DryRun = "server"
)

// Dry reports whether nothing is stored.
func (d DryRun) Dry() bool { return d != DryRunNone }

// Writer returns the client to write with. It must not be used with DryRunClient.
func (d DryRun) Writer(c client.Client) client.Client {
	if d == DryRunServer {
		return client.NewDryRunClient(c)
	}
	return c
}
