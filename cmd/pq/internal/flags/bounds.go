package flags

import (
	"math"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// InBounds returns a usage error unless a flag is 0 or within its bounds, which the bridge would
// check too.
func InBounds(flag string, value, least, most time.Duration) error {
	if value == 0 || least <= value && value <= most {
		return nil
	}
	return exit.Usagef("--%s is %v: want %v to %v", flag, value, least, most)
}

// CheckAckWait checks the length of a lease.
func CheckAckWait(d time.Duration) error {
	return InBounds("ack-wait", d, settings.MinLease, settings.MaxLease)
}

// CheckEmpty returns a usage error if a text flag of the command was given without a text: a script
// whose variable is empty must not do more than it was meant to.
func CheckEmpty(cmd *cobra.Command) (err error) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Value.Type() == "string" && f.Value.String() == "" {
			err = exit.Usagef("--%s is empty: give it a value, or leave it out", f.Name)
		}
	})
	return err
}

// AtLeastOne returns a usage error unless a flag is 1 or more.
func AtLeastOne(flag string, n int) error {
	if n < 1 {
		return exit.Usagef("--%s is %d: want at least 1", flag, n)
	}
	return nil
}

// OrAll returns how many items a flag asks for, or if --all is given no limit.
func OrAll(cmd *cobra.Command, flag string, n int, all bool) (int, error) {
	switch {
	case all && cmd.Flags().Changed(flag):
		return 0, exit.Usagef("--%s and --all exclude each other: leave out one", flag)
	case all:
		return math.MaxInt, nil
	}
	return n, AtLeastOne(flag, n)
}

// CheckWait returns a usage error for a flag that says how long to wait, unless it is 0 or more.
func CheckWait(flag string, d time.Duration) error {
	if d < 0 {
		return exit.Usagef("--%s is %v: want a duration, such as 30s", flag, d)
	}
	return nil
}
