package load

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is the result of a load. Times are in seconds.
type Report struct {
	Queue       string  `json:"queue"`
	Queues      int     `json:"queues"`
	Mode        Mode    `json:"mode"`
	Batch       int     `json:"batch"`
	Clients     int     `json:"clients"`
	Connections int     `json:"connections"`
	Seconds     float64 `json:"seconds"`
	// RanDry means that all queues became empty before the load was over.
	RanDry     bool  `json:"ran_dry,omitempty"`
	Operations []Row `json:"operations"`
}

// Row is one operation. Latencies are of requests that succeeded; with Lease that is a lease and
// its acknowledgement, and with Work the time from the end of one job to the end of the next.
type Row struct {
	Name   string  `json:"name"`
	Count  int64   `json:"count"`  // of items
	Errors int64   `json:"errors"` // requests that were refused or of unknown outcome, not in Count
	Rate   float64 `json:"rate"`   // items per second
	P50    float64 `json:"p50"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	P999   float64 `json:"p999"`
	Max    float64 `json:"max"`
}

func (r *run) report() *Report {
	report := &Report{
		Queue: r.Queue, Queues: r.Queues, Mode: r.Mode, Batch: r.Batch,
		Clients: r.Clients, Connections: r.Connections,
		Seconds: r.elapsed.Seconds(), RanDry: r.dry(),
	}

	for _, name := range r.operations() {
		m := r.ops[name]
		quantile := func(q float64) float64 {
			return time.Duration(m.latency.ValueAtQuantile(q)).Seconds()
		}
		report.Operations = append(report.Operations, Row{
			Name: name, Count: m.items, Errors: m.errors,
			Rate: float64(m.items) / max(r.elapsed.Seconds(), 1e-9),
			P50:  quantile(50), P90: quantile(90), P99: quantile(99),
			P999: quantile(99.9), Max: quantile(100),
		})
	}

	return report
}

// Write prints the report as a table.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s: %.1f s, %d clients on %d connections; latencies in ms\n\n",
		r.Mode, where(r.Queue, r.Queues), r.Seconds, r.Clients, r.Connections)

	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tcount\tper second\tp50\tp90\tp99\tp99.9\tmax\terrors\t")
	for _, row := range r.Operations {
		fmt.Fprintf(table, "%s\t%d\t%.0f\t%s\t%s\t%s\t%s\t%s\t%d\t\n", row.Name, row.Count,
			row.Rate,
			millis(row.P50), millis(row.P90), millis(row.P99), millis(row.P999), millis(row.Max),
			row.Errors)
	}

	_ = table.Flush() // a Builder takes it all

	if r.RanDry {
		b.WriteString("\nThe load ran out of items.\n")
	}

	_, err := io.WriteString(w, b.String())
	return err
}

func millis(seconds float64) string { return fmt.Sprintf("%.2f", seconds*1e3) }
