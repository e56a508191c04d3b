package flags

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/pqbridge/pqbridge/subjects"
)

// duration is the value of a flag that is a duration, which may have days.
type duration time.Duration

// Duration defines a flag as [pflag.FlagSet.DurationVar] does. Its value may have days: 7d is 168h.
func Duration(
	set *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string,
) {
	*p = value
	flag := set.VarPF((*duration)(p), name, "", usage)
	if value == 0 {
		flag.DefValue = "" // which the help leaves out
	}
}

// Set implements pflag.Value.
func (d *duration) Set(text string) error {
	parsed, err := time.ParseDuration(subjects.Days(text))
	*d = duration(parsed)
	return err
}

// String implements pflag.Value.
func (d *duration) String() string { return time.Duration(*d).String() }

// Type implements pflag.Value.
func (d *duration) Type() string { return "duration" }
