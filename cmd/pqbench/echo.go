package main

import (
	"context"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/bench"
)

// newEcho returns the hidden command that the benchmark starts as its yardstick.
func newEcho() *cobra.Command {
	return &cobra.Command{
		Use:    "echo",
		Short:  "Answer requests with their own payload",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			usable, broken := context.WithCancelCause(cmd.Context())
			defer broken(nil)
			nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.Name("pqbench echo"),
				nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { broken(err) }))
			if err != nil {
				return err
			}
			defer nc.Close()
			_, err = nc.QueueSubscribe(bench.EchoSubject, "echo", func(m *nats.Msg) {
				if err := m.Respond(m.Data); err != nil {
					broken(err)
				}
			})
			if err == nil {
				err = nc.Flush()
			}
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), "ready"); err != nil {
				return err
			}
			<-usable.Done()
			if cmd.Context().Err() != nil {
				return nil // told to stop
			}
			return context.Cause(usable)
		},
	}
}
