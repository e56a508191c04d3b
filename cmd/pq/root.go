package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/internal/buildinfo"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
)

// newRoot returns the command tree. The flag that comes with it is set just before
// a command's own code runs: its flags and arguments have been accepted.
func newRoot() (root *cobra.Command, started *bool) {
	a := &app{}
	started = new(bool)
	root = &cobra.Command{
		Use:     "pq",
		Version: buildinfo.Describe(version),
		Long:    "pq works on the durable queues that pqbridge serves over NATS.",
		Example: `  pq push jobs "write the report" --priority 5
  pq pop jobs`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.CheckEmpty(cmd); err != nil {
				return err
			}
			if !offline(cmd) {
				if err := a.prepare(cmd.Flags()); err != nil {
					return err
				}
			}
			*started = true
			return nil
		},
	}

	a.addFlags(root.PersistentFlags())
	groups := []group{
		newGroup("items", newPush(a), newPop(a), newPeek(a), newLen(a), newItems(a), newDead(a),
			newResult(a), newDone(a)),
		newGroup("workers", newWork(a), newLease(a), newAck(a), newNak(a), newTerm(a),
			newExtend(a), newBusy(a)),
		newGroup("items by their ids", newFind(a), newGet(a), newRank(a), newMv(a), newRm(a),
			newRelease(a), newRedrive(a), newTrail(a)),
		newGroup("queues", newLs(a), newWatch(a), newInfo(a), newConfig(a), newPause(a),
			newResume(a), newPurge(a), newDelete(a)),
		newGroup("schedules", newSchedule(a)),
		newGroup("tools", newDashboard(a), newDoctor(a), newBench(a), newExport(a), newImport(a),
			newVersion()),
	}

	for _, g := range groups {
		root.AddCommand(g.commands...)
	}
	root.AddCommand(newConnectionTopic())
	setDefaults(root)
	addHelp(root, groups)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flags.Explain(err) })
	return root, started
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of pq",
		Example: "  pq version",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "pq", cmd.Root().Version)
			return err
		},
	}
}

// setDefaults sets what most commands of a group have in common.
func setDefaults(group *cobra.Command) {
	for _, cmd := range group.Commands() {
		cmd.Flags().SortFlags = false
		if !cmd.Runnable() {
			refuseUnknown(cmd)
		}
		if cmd.Args == nil {
			cmd.Args = arguments
		}
		if cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
		setDefaults(cmd)
	}
}

// refuseUnknown makes a group of commands, or a page of help, refuse what it does not know. By
// itself cobra would print its help.
func refuseUnknown(cmd *cobra.Command) {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	want := "want " + cmd.CommandPath() + " alone"
	if len(names) > 0 {
		want = "want one of " + strings.Join(names, ", ")
	}

	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return fmt.Errorf("unknown command %q: %s", args[0], want)
		case len(names) > 0:
			return errors.New("the command is missing: " + want)
		}
		return nil
	}

	cmd.RunE = func(*cobra.Command, []string) error { return cmd.Help() }
}

// offline reports whether a command needs no server, so that nothing in the environment can be
// wrong. The completion of a queue's name reads the environment itself.
func offline(cmd *cobra.Command) bool {
	names := []string{"completion", "help", "version", connectionTopic, cobra.ShellCompRequestCmd,
		cobra.ShellCompNoDescRequestCmd}
	return slices.Contains(names, cmd.Name()) || slices.Contains(names, cmd.Parent().Name())
}
