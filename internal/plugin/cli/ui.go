package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"nodekeeper.dev/internal/daemon/command"
	"nodekeeper.dev/internal/plugin/inspect"
	"nodekeeper.dev/internal/plugin/ui"
)

const (
	// loopback is the only address of the page.
	loopback = "127.0.0.1"
	// stuckInPage is the age of a stuck transaction on the page: the default of status.
	stuckInPage = time.Minute
	// headerTimeout, idleTimeout and maxHeader bound the resources of clients that send no request.
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 32 << 10
	// closeTimeout bounds the shutdown of the server. Streams end at once.
	closeTimeout = 2 * time.Second
)

func newUICommand(p *plugin) *cobra.Command {
	var port uint16
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Show nodes and events live in a browser",
		Long: `Serve a page that shows the nodes and their states, the queue, what is saved and
restored as it happens, the saved labels of a node beside its own, and the
replicas. The page is served until the command is interrupted. It changes nothing.

The page is on a loopback address, and opens by the link that the command prints.
The link works once, for one browser, which can then have up to five tabs of the
page. When it is used, the command prints the next one. The page has the rights of your
kubeconfig, to look only. See docs/how-to/use-the-live-page.md.`,
		Example: `  # on any free port
  kubectl nodekeeper ui

  # on a machine that you are logged in to by ssh -L 8080:127.0.0.1:8080
  kubectl nodekeeper ui --port=8080`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.ui(cmd.Context(), port) },
	}
	cmd.Flags().Uint16Var(&port, "port", 0, "Port of the page on "+loopback+"; 0 picks a free one (default 0)")
	return cmd
}

func (p *plugin) ui(ctx context.Context, port uint16) error {
	c, err := p.connect()
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("serving the page: %w", err)
	}
	journal := ui.NewJournal()
	feed := ui.NewFeed(journal, p.clusterName(c), assess)
	feed.Clock = c.Clock
	host := listener.Addr().String()
	var page *ui.Server
	page = ui.New(ui.Config{
		Journal: journal, Source: &uiSource{Feed: feed, plugin: p, cluster: c}, Clock: c.Clock,
		LinkUsed: func() { _, _ = fmt.Fprintf(p.Out, "The link was used. The next one: %s\n", page.Link(host)) },
	})
	_, _ = fmt.Fprintf(p.Out, "The page is at %s\n", page.Link(host))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serve(ctx, listener, page) })
	group.Go(func() error { return feed.Run(ctx) })
	group.Go(func() error { return p.feed(ctx, c, feed) })
	return group.Wait() //nolint:wrapcheck // each names what failed
}

// serve serves until ctx ends.
func serve(ctx context.Context, listener net.Listener, page http.Handler) error {
	server := &http.Server{
		Handler: page, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx }, // ends the streams
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving the page: %w", err)
	case <-ctx.Done():
	}
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := server.Shutdown(closeCtx); err != nil && !errors.Is(err, context.DeadlineExceeded) { // remaining connections end with the process
		return fmt.Errorf("closing the page: %w", err)
	}
	return nil
}

// assess returns the health of nodekeeper like status, except for what takes more than the watches
// of the page: missing namespaces, unready webhooks, Nodes that are closed without the marker, and
// records that do not follow their Node.
func assess(survey *inspect.Survey, now time.Time) ui.Health {
	s := newStatus(survey, nil, now, stuckInPage)
	h := ui.Health{Unwell: s.Unwell, Stuck: []ui.Stuck{}, StuckTotal: len(s.Stuck)}
	for _, one := range s.Stuck[:min(len(s.Stuck), shownStuck)] {
		h.Stuck = append(h.Stuck, ui.Stuck(one))
	}
	return h
}

// clusterName returns the name of the cluster: the context of the kubeconfig, or the address.
func (p *plugin) clusterName(c *cluster) string {
	if *p.Connection.Context != "" {
		return *p.Connection.Context
	}
	raw, err := p.Connection.ToRawKubeConfigLoader().RawConfig()
	if err != nil || raw.CurrentContext == "" || *p.Connection.APIServer != "" {
		return c.config.Host
	}
	return raw.CurrentContext
}
