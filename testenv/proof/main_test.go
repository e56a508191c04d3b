package proof_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// options of the command line.
type options struct {
	seed     uint64
	duration time.Duration
	rounds   int
	ops      int
	calm     bool
	history  string
	out      string
	keep     string
}

// flags is set by the command line.
var flags options

func init() {
	flag.Uint64Var(&flags.seed, "seed", 0, "seed of everything random; 0 picks one")
	flag.DurationVar(&flags.duration, "duration", 0,
		"how long to run; 0 makes -rounds rounds of each kind of system")
	flag.IntVar(&flags.rounds, "rounds", harness.Times(1, 4),
		"without -duration: histories for each kind of system, of those on FoundationDB together")
	flag.IntVar(&flags.ops, "ops", harness.Times(2_000, 5_000),
		"operations on each kind of system, for TestAccounts")
	flag.BoolVar(&flags.calm, "calm", false, "make one fault in four histories")
	flag.StringVar(&flags.history, "history", "", "file of a history to check again, for TestFile")
	flag.StringVar(&flags.out, "out", os.TempDir(), "folder for histories with faults")
	flag.StringVar(&flags.keep, "keep", "", "file to add histories that pass to, one a line")
}

// all reports whether to test on all kinds of systems: nightly, and if a flag says how.
func (o options) all() bool {
	all := harness.Nightly
	flag.Visit(func(f *flag.Flag) {
		all = all || slices.Contains([]string{"seed", "duration", "rounds", "ops"}, f.Name)
	})
	return all
}

// firstSeed returns the seed to begin with.
func (o options) firstSeed(t *testing.T) uint64 {
	seed := o.seed
	if seed == 0 {
		seed = 1 + rand.Uint64N(1<<32)
	}

	t.Logf("-seed %d", seed)
	return seed
}

// checkKeep returns why the file for histories cannot be written, which is no violation, or nil.
func (o options) checkKeep() error {
	if o.keep == "" {
		return nil
	}
	f, err := os.OpenFile(o.keep, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

func TestMain(m *testing.M) {
	if os.Getenv(serviceVariable) != "" {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	harness.Main(m, testenv.FDBGoroutines()...)
}
