package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
)

// Each help text fits on a screen of 80 columns and 24 lines, with a line left for
// the prompt.
const rootUsage = `Usage: pq COMMAND [flags]

Commands:
%s
Examples, for a service that make run or pqbridge -dev has started:
%s

More: pq COMMAND --help, pq help connection to reach another server, and
pq completion SHELL --help to complete commands and names in a shell.

Exit codes: 0 on success, 1 on failure, 2 for a usage error, 3 if the queue is
empty, 4 if a job is not over, 128 and the signal's number if a signal ended pq
early (130 for Ctrl-C). The first signal lets requests under way finish; another
one, more than a second later, ends pq at once.
`

// group is a group of commands in the help.
type group struct {
	title    string
	commands []*cobra.Command
}

func newGroup(title string, commands ...*cobra.Command) group { return group{title, commands} }

// addHelp gives root and its commands their help. Root lists the commands in the
// order given. Functions do it, because cobra's templates would add 5 MB to pq.
func addHelp(root *cobra.Command, groups []group) {
	root.PersistentFlags().BoolP("help", "h", false, "print help")
	root.PersistentFlags().Lookup("help").Hidden = true
	root.SetHelpCommand(newHelp())

	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		out := cmd.OutOrStdout()
		// As cobra does, nobody hears of failures.
		_, _ = fmt.Fprintf(out, "%s\n\n", cmp.Or(cmd.Long, cmd.Short))
		switch {
		case cmd == root:
			var list strings.Builder
			for _, g := range groups {
				var names []string
				for _, c := range g.commands {
					names = append(names, c.Name())
				}
				fmt.Fprintf(&list, "  %-21s%s\n", g.title, strings.Join(names, "  "))
			}
			_, _ = fmt.Fprintf(out, rootUsage, list.String(), root.Example)
		case cmd.HasSubCommands() || cmd.Name() == connectionTopic:
			_, _ = fmt.Fprintf(out, "Flags:\n%s\nExamples:\n%s\n",
				cmd.InheritedFlags().FlagUsages(), cmd.Example)
		default:
			_, _ = fmt.Fprint(out, usage(cmd))
		}
	})
}

// usage is the part of a command's help that follows its description.
func usage(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s\nExamples:\n%s\n\n", cmd.UseLine(), cmd.Example)
	if cmd.HasAvailableLocalFlags() {
		fmt.Fprintf(&b, "Flags:\n%s\n", cmd.LocalFlags().FlagUsages())
	}
	b.WriteString("More: pq help connection for the flags that say how to reach the server.\n")
	return b.String()
}

// newHelp replaces cobra's help command, which takes an unknown topic for a success.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Print the help of a command",
		Example: "  pq help push\n  pq help connection",
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return exit.Usagef("no help on %q", strings.Join(args, " "))
			}
			return topic.Help()
		},
	}
}

const connectionTopic = "connection"

// newConnectionTopic is a page of help: it has nothing to run.
func newConnectionTopic() *cobra.Command {
	return &cobra.Command{
		Use: connectionTopic,
		Long: `Every command takes these flags, or the variables in brackets. What is not
set comes from the context that is named, or else the one that nats context
select has selected. The server is nats://127.0.0.1:4222 unless one is named.`,
		Example: `  pq len jobs --server nats://queues.example.com:4222 --creds worker.creds
  pq len jobs --timeout 30s`,
	}
}

// version is set by the linker in releases.
var version string
