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
