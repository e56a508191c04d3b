package main

import (
	"cmp"
	"runtime/debug"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pqbridge/pqbridge/subjects"
)

// version is set by the linker in releases.
var version string

// moduleVersion is that of the module, as far as go build knows it.
func moduleVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// app is what all commands share: the global flags.
type app struct {
	connection
	priorityPrefix, fifoPrefix string
}

// newRoot returns the command tree. The flag returned with it is set as soon
// as the code of a command is about to run, that is, when its flags and
// arguments were accepted.
func newRoot() (root *cobra.Command, started *bool) {
	a := &app{}
	started = new(bool)
	root = &cobra.Command{
		Use:     "pq",
		Short:   "Durable priority queues over NATS",
		Version: cmp.Or(version, moduleVersion()),
		Long: `pq pushes to and pops from the durable queues that pqbridge serves over NATS.

Exit codes: 0 on success, 1 on failure, 2 for a usage error, 3 if the queue is
empty, 128 and the signal's number if a signal ended it before it was done (130
for Ctrl-C). A signal lets the request under way finish; another one that comes
more than a second later ends pq at once.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.fromEnv(cmd.Flags()); err != nil {
				return err
			}
			*started = true
			return nil
		},
	}
	a.addFlags(root.PersistentFlags())
	root.AddCommand(
		newPush(a), newPop(a), newPeek(a), newLen(a), newBench(a),
	)
	return root, started
}

func (a *app) addFlags(flags *pflag.FlagSet) {
	flags.SortFlags = false
	a.connection.addFlags(flags)
	flags.StringVar(&a.priorityPrefix, "prefix", subjects.DefaultPriorityPrefix, "first part of the subjects of priority queues")
	flags.StringVar(&a.fifoPrefix, "fifo-prefix", subjects.DefaultFIFOPrefix, "first part of the subjects of FIFO queues")
}
