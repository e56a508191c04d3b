package main

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/bench"
)

// newEcho returns the hidden command that pq bench starts as the service to
// compare with.
func newEcho(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "bench-echo",
		Short:  "Answer the requests of pq bench with their own payload",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial(cmd.Context())
			if err != nil {
				return err
			}
			defer c.close()
			_, err = c.nc.QueueSubscribe(bench.EchoSubject, "echo", func(m *nats.Msg) {
				if err := m.Respond(m.Data); err != nil {
					c.broken(err)
				}
			})
			if err == nil {
				err = c.nc.Flush()
			}
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), "ready"); err != nil {
				return err
			}
			select {
			case <-cmd.Context().Done():
				return nil // told to stop
			case <-c.usable.Done():
				return context.Cause(c.usable)
			}
		},
	}
}
