package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/internal/ready"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/dashboard"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
)

// dashboardFlags are the command line of pq dashboard.
type dashboardFlags struct {
	*app
	options     dashboard.Options
	tokenFile   string
	healthcheck bool
}

// dashboardMemory is the memory in bytes above which pq dashboard collects garbage more often, so
// that it lives in 256 MiB.
const dashboardMemory = 160 << 20

func newDashboard(a *app) *cobra.Command {
	d := &dashboardFlags{app: a}
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Serve web pages that show the queues",
		Long: `Serve web pages that show the queues, their items and the bridges, and act on
them. They may do whatever the NATS user may do that pq logs in as. Each action
is logged on standard error. An address that other machines can reach needs
--token-file or --trust-proxy-user.`,
		Example: `  pq dashboard
  pq dashboard --listen 0.0.0.0:8423 --token-file token --host pq.example.com`,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd) },
	}

	set := cmd.Flags()
	set.StringVar(&d.options.Listen, "listen", "127.0.0.1:8423",
		"`ADDRESS` to serve")
	set.StringVar(&d.tokenFile, "token-file", "", "`FILE` with the token to log in with")
	set.StringVar(&d.options.ProxyUser, "trust-proxy-user", "",
		"`HEADER` in which a proxy names the user")
	set.StringArrayVar(&d.options.Hosts, "host", nil, "`NAME` that browsers use; may be repeated")
	set.BoolVar(&d.options.HideValues, "hide-values", false,
		"do not show values and headers of items")
	set.BoolVar(&d.healthcheck, "healthcheck", false,
		"exit with 0 if one is ready at --listen")
	return cmd
}

func (d *dashboardFlags) run(cmd *cobra.Command) error {
	if d.healthcheck {
		return ready.Check(cmd.Context(), d.options.Listen)
	}

	if d.tokenFile != "" {
		token, err := os.ReadFile(d.tokenFile)
		if err == nil && len(strings.TrimSpace(string(token))) == 0 {
			err = errors.New("it is empty")
		}
		if err != nil {
			return exit.Error{Err: fmt.Errorf("--token-file: %w", err)}
		}
		d.options.Token = strings.TrimSpace(string(token))
	}

	login, err := d.Options()
	if err != nil {
		return err
	}

	// NATS may be started later than the dashboard.
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	var away atomic.Pointer[error]
	say := func(why error, news bool) {
		switch away.Store(&why); {
		case why == nil:
			log.Info("NATS is back")
		case news:
			log.Warn("NATS is unreachable", "error", why)
		}
	}
	d.options.Away = func() (why error) {
		if last := away.Load(); last != nil {
			why = *last
		}
		return why
	}

	nc, err := d.ConnectAny(append(slices.Concat(login, d.Lasting(say)),
		nats.RetryOnFailedConnect(true)))
	if err != nil {
		return err
	}

	defer nc.Close()

	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(dashboardMemory)
	}

	d.options.Conn, d.options.Grammar, d.options.Timeout = nc, d.grammar, d.Timeout
	d.options.Log = log
	board, err := dashboard.New(d.options)
	switch {
	case errors.Is(err, dashboard.ErrOptions):
		return exit.Usage(err)
	case err != nil:
		return fmt.Errorf("cannot serve the dashboard: %w", err)
	}

	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "pq dashboard: %s\n", board.URL()); err != nil {
		return err
	}

	return board.Run(cmd.Context())
}
