package main

import (
	"os"

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
			return bench.Echo(cmd.Context(), os.Getenv("NATS_URL"), cmd.OutOrStdout())
		},
	}
}
