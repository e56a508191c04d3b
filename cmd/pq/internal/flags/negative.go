package flags

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/subjects"
)

// NegativeLast moves a priority below zero, which looks like a flag, behind a -- if pq mv is to be
// run.
func NegativeLast(root *cobra.Command, args []string) []string {
	cmd, _, err := root.Find(args)
	if err != nil || cmd.Name() != "mv" || slices.Contains(args, "--") {
		return args
	}
	for i, arg := range args {
		if _, err := subjects.ParsePriority(arg); err != nil || arg[0] != '-' || i > 0 && wantsValue(cmd, args[i-1]) {
			continue
		}
		return append(slices.Delete(slices.Clone(args), i, i+1), "--", arg)
	}
	return args
}

// wantsValue reports whether an argument is a flag whose value is the next argument.
func wantsValue(cmd *cobra.Command, arg string) bool {
	name, long := strings.CutPrefix(arg, "--")
	f := cmd.Flag(name)
	if !long && len(arg) == 2 && arg[0] == '-' {
		f = cmd.Root().PersistentFlags().ShorthandLookup(arg[1:])
	}
	return f != nil && f.NoOptDefVal == ""
}
