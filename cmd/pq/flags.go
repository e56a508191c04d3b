package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pqbridge/pqbridge/subjects"
)

// flagError says what is wrong with a flag, without the words of the packages that parse it.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid):
		return fmt.Errorf("--%s is %q: %s", invalid.GetFlag().Name, invalid.GetValue(), wanted(invalid))
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return fmt.Errorf("%w: what begins with - and is no flag comes after --", err)
	}
	return err
}

// wanted says what would be a valid value.
func wanted(e *pflag.InvalidValueError) string {
	switch value := e.GetFlag().Value.(type) {
	case *priorityFlag, *countFlag:
		return e.Unwrap().Error()
	default:
		switch value.Type() {
		case "duration":
			return "want a duration with a unit, such as 30s or 1h30m"
		case "bool":
			return "want true or false"
		case "intSlice":
			return "want decimal numbers with commas between, such as 65,66"
		case "float64":
			return "want a decimal number, such as 0.5"
		default:
			return "want a decimal number"
		}
	}
}

// negativeLast moves a priority below zero, which looks like a flag, behind a -- if pq mv is to be run.
func negativeLast(root *cobra.Command, args []string) []string {
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
