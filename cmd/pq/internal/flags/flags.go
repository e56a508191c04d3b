// Package flags has what pq adds to pflag: numbers, and errors and help in its own words.
package flags

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Explain describes a mistake in a flag, without the words of the packages that parse it.
func Explain(err error) error {
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid):
		return fmt.Errorf("--%s is %q: %s", invalid.GetFlag().Name, invalid.GetValue(),
			wanted(invalid))
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return fmt.Errorf("%w: an argument that begins with - must come after --", err)
	}
	return err
}

// wanted says what would be a valid value.
func wanted(e *pflag.InvalidValueError) string {
	value := e.GetFlag().Value
	if _, ok := value.(*Priority); ok {
		return e.Unwrap().Error()
	}

	return cmp.Or(map[string]string{
		"duration": "want a duration with a unit, such as 30s, 24h or 7d",
		"bool":     "want true or false",
		"intSlice": "want decimal numbers with commas between, such as 65,66",
		"float64":  "want a decimal number, such as 0.5",
	}[value.Type()], "want a decimal number")
}

// Named returns an error that begins with the member of a request, such as "if_missed: want ...",
// with the flag of cmd that it is from, and other errors as they are.
func Named(cmd *cobra.Command, err error, text string) error {
	member, problem, _ := strings.Cut(text, ": ")
	name := strings.ReplaceAll(member, "_", "-")
	if name == "headers" {
		name = "header"
	}
	if problem == "" || cmd.Flags().Lookup(name) == nil {
		return err
	}
	return errors.New("--" + name + ": " + problem)
}

// Completes lets a shell complete the values of a flag that cmd has.
func Completes(cmd *cobra.Command, flag string, values ...string) {
	// Fails without the flag.
	_ = cmd.RegisterFlagCompletionFunc(flag,
		cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}
