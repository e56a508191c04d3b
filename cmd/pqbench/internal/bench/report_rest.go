package bench

import (
	"fmt"
	"io"
	"time"
)

// IdleRow is a service at rest with queues that have one leased item each.
type IdleRow struct {
	Queues int `json:"queues"`
	Rest
}

// WaitersRow is a service at rest with waiting pops.
type WaitersRow struct {
	Waiters int   `json:"waiters"`
	Each    int64 `json:"each_bytes"` // memory for each of them
	Rest
}

// LeasedRow is how leased items of a holder that is gone come back. Times are from the end of
// the last lease.
type LeasedRow struct {
	Items   int           `json:"items"`
	Lease   time.Duration `json:"lease"`   // how long it took to lease them
	First   time.Duration `json:"first"`   // until the first pop was answered
	Last    time.Duration `json:"last"`    // until all were popped, in order
	Retries int           `json:"retries"` // pops that were answered with 503
}

// DelayedRow is how many items fall due in the same second. Rest is the service before that.
type DelayedRow struct {
	Items  int           `json:"items"`
	Queues int           `json:"queues"`
	Push   time.Duration `json:"push"`         // how long it took to push them
	Memory int64         `json:"memory_bytes"` // of the service, more than without them
	Rest
	// The longest time that one waited from the time on at which the items fall due, with the tries that were
	// answered with 503: for another queue, and for those that have the items.
	PushWait    time.Duration `json:"push_wait"`
	PopWait     time.Duration `json:"pop_wait"`
	DuePushWait time.Duration `json:"due_push_wait"`
	DuePopWait  time.Duration `json:"due_pop_wait"`
	Back        time.Duration `json:"back"`   // after that time, the last item was swept
	Sweeps      int64         `json:"sweeps"` // transactions
}

func (r *Report) writeDelayed(table io.Writer) {
	if d := r.Delayed; d != nil {
		fmt.Fprintln(table, "\ndelayed items\tqueues\tpushed/s\ttransactions at rest\tCPU\tmemory MB\t")
		fmt.Fprintf(table, "%d\t%d\t%.0f\t%d\t%.2f %%\t%d\t\n", d.Items, d.Queues, float64(d.Items)/d.Push.Seconds(),
			d.Transactions, 100*d.CPU, d.Memory>>20)
		fmt.Fprintln(table, "\ndue in one second\tlongest push\tpop\tpush, their queues\tpop\tall swept after\tsweeps\t")
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%d\t\n", d.Items, millis(d.PushWait), millis(d.PopWait),
			millis(d.DuePushWait), millis(d.DuePopWait), millis(d.Back), d.Sweeps)
	}
}

func (r *Report) writeRest(table io.Writer) {
	if r.Idle != nil {
		fmt.Fprintln(table, "\nidle queues, an item leased in each\ttransactions\tCPU\t")
		fmt.Fprintf(table, "%d\t%d\t%.2f %%\t\n", r.Idle.Queues, r.Idle.Transactions, 100*r.Idle.CPU)
	}
	if len(r.Waiters) > 0 {
		fmt.Fprintln(table, "\nwaiting pops\ttransactions\tCPU\tbytes each\t")
	}
	for _, row := range r.Waiters {
		fmt.Fprintf(table, "%d\t%d\t%.2f %%\t%d\t\n", row.Waiters, row.Transactions, 100*row.CPU, row.Each)
	}
}

func (r *Report) writeLeased(table io.Writer) {
	if l := r.Leased; l != nil {
		fmt.Fprintln(table, "\nleases that end\tleased/s\tfirst after\tlast after\titems/s\tretries\t")
		fmt.Fprintf(table, "%d\t%.0f\t%s\t%s\t%.0f\t%d\t\n", l.Items, float64(l.Items)/l.Lease.Seconds(),
			millis(l.First), millis(l.Last), float64(l.Items)/l.Last.Seconds(), l.Retries)
	}
}
