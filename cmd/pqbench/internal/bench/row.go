package bench

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/process"
)

// Names of rows that others are compared with.
const (
	rowEcho      = "echo"
	rowPush      = "push"
	rowPopMin    = "pop.min"
	rowNaivePush = "naive push"
	rowNaivePop  = "naive pop"

	rowPushHeader = "push header"
	rowPopHeader  = "pop.min header"
	rowPushGroups = "push Pq-Group"
	rowPopGroups  = "pop.min Pq-Group"
)

// row is an operation to measure, with its results so far.
type row struct {
	name  string
	queue string // whose it is, among peers
	load  load
	who   user // serves the operation; nil if that is not known
	// prepare gets ready for a turn, and says when it ends.
	prepare func(ctx context.Context) (limit, error)

	used  map[string]process.Usage // by the users, while the row ran
	all   process.Machine          // that passed meanwhile
	out   outcome
	extra []Figure
}

// user uses processor time and memory.
type user interface{ Used() process.Usage }

// self is this process.
type self struct{}

func (self) Used() process.Usage { return process.UsedBy(os.Getpid()) }

// group is several processes that share the work.
type group []*process.Process

func (g group) Used() process.Usage {
	sum := process.Usage{Known: true}
	for _, p := range g {
		u := p.Used()
		sum.Known = sum.Known && u.Known
		sum.CPU += u.CPU
		sum.Peak += u.Peak
	}
	return sum
}

// users are the processes that an operation costs processor time.
func (r *rig) users(w *row) map[string]user {
	users := map[string]user{userClient: self{}, userNATS: r.nats}
	if w.who != nil {
		users[userService] = w.who
	}
	if r.cluster != nil {
		users[userFDB] = r.cluster
	}
	return users
}

// run runs the row until lim, and adds what that used.
func (r *rig) run(ctx context.Context, w *row, lim limit) error {
	if w.used == nil {
		w.used, w.out = map[string]process.Usage{}, newOutcome()
	}
	users := r.users(w)
	before := map[string]process.Usage{}
	for name, u := range users {
		before[name] = u.Used()
	}
	began := process.MachineTime()

	out, err := runLoad(ctx, w.load, lim)
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}

	w.all.Add(began, process.MachineTime())
	w.out.append(out)
	for name, u := range users {
		sum, seen := w.used[name]
		sum.Known = sum.Known || !seen
		sum.Add(before[name], u.Used())
		w.used[name] = sum
	}
	return nil
}

// takeTurns gives each row a turn, again and again while more says so, because the speed of a
// shared machine changes from one second to the next.
func (r *rig) takeTurns(ctx context.Context, rows []*row, more func(round int) bool) error {
	for round := 0; more(round); round++ {
		for i, w := range rows {
			r.Progress(round*len(rows)+i, max(r.Rounds, round+1)*len(rows), w.queue+" "+w.name)
			lim, err := w.prepare(ctx)
			if err == nil {
				err = r.run(ctx, w, lim)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// rounds is for rows whose turns are parts of Duration.
func (r *rig) rounds(round int) bool { return round < r.Rounds }

// part is the turn of a row that only needs time.
func (r *rig) part() limit { return limit{duration: r.Duration / time.Duration(r.Rounds)} }

// result returns the row for the report.
func (w *row) result(echo float64) Row {
	quantile := func(p float64) float64 {
		return float64(w.out.latency.ValueAtQuantile(p)) / float64(time.Microsecond)
	}
	result := Row{
		Name: w.name, Queue: w.queue, Items: w.out.items, Rate: w.out.rate(), RanDry: w.out.dry,
		P50: quantile(50), P99: quantile(99), Extra: w.extra,
	}
	if echo > 0 {
		result.Ratio = result.Rate / echo
	}

	for name, value := range map[string]**float64{
		userClient: &result.Client, userService: &result.Service,
		userNATS: &result.NATS, userFDB: &result.FDB,
	} {
		if u := w.used[name]; u.Known && w.out.items > 0 {
			each := float64(u.CPU.Nanoseconds()) / 1e3 / float64(w.out.items)
			*value = &each
		}
	}
	if w.all.All > 0 {
		stolen := float64(w.all.Stolen) / float64(w.all.All)
		result.Stolen = &stolen
	}
	return result
}
