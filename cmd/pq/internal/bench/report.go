package bench

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is the result of a benchmark. Its JSON form is for machines: times are
// in nanoseconds, rates in operations per second, memory in bytes.
type Report struct {
	Time        time.Time     `json:"time"`
	System      string        `json:"system"`
	CPUs        int           `json:"cpus"`
	Payload     int           `json:"payload"`
	Clients     int           `json:"clients"`
	Connections int           `json:"connections"`
	Lean        bool          `json:"lean"`
	Priorities  int           `json:"priorities"`
	Duration    time.Duration `json:"duration"`
	Operations  []Row         `json:"operations"`
	Backlogs    []BacklogRow  `json:"backlogs,omitempty"`
	Queues      *QueuesRow    `json:"queues,omitempty"`
}

// Row is one operation. What is not known is nil.
type Row struct {
	Name      string        `json:"name"`
	Count     int64         `json:"count"`
	Rate      float64       `json:"rate"`
	P50       time.Duration `json:"p50"`
	P99       time.Duration `json:"p99"`
	P999      time.Duration `json:"p999"`
	Ratio     float64       `json:"ratio"` // rate over that of the echo service
	RanDry    bool          `json:"ran_dry,omitempty"`
	CPU       *float64      `json:"cpu,omitempty"`      // seconds of the service per million operations
	NATSCPU   *float64      `json:"nats_cpu,omitempty"` // the same of the NATS server
	PeakBytes *int64        `json:"peak_bytes,omitempty"`
}

// BacklogRow is pop.min with a number of items queued.
type BacklogRow struct {
	Items   int           `json:"items"`
	Rate    float64       `json:"rate"`
	Ratio   float64       `json:"ratio"` // rate over that of the first row
	Peak    int64         `json:"peak_bytes"`
	Restart time.Duration `json:"restart"` // from start to ready, after kill -9
}

// QueuesRow compares one queue with many.
type QueuesRow struct {
	Queues     int     `json:"queues"`
	SinglePush float64 `json:"single_push"`
	SinglePop  float64 `json:"single_pop"`
	ManyPush   float64 `json:"many_push"`
	ManyPop    float64 `json:"many_pop"`
}

func newReport(o Options) *Report {
	return &Report{
		Time:        time.Now().UTC().Truncate(time.Second),
		System:      runtime.GOOS + "/" + runtime.GOARCH + " " + runtime.Version(),
		CPUs:        runtime.NumCPU(),
		Payload:     o.Payload,
		Clients:     o.Clients,
		Connections: o.Connections,
		Lean:        o.Lean,
		Priorities:  o.Priorities,
		Duration:    o.Duration,
	}
}

func newRow(name string, out outcome) Row {
	quantile := func(p float64) time.Duration {
		return time.Duration(out.latency.ValueAtQuantile(p))
	}
	return Row{
		Name: name, Count: out.requests, Rate: out.rate(), RanDry: out.dry,
		P50: quantile(50), P99: quantile(99), P999: quantile(99.9),
	}
}

func (row *Row) setUsage(before, after, natsBefore, natsAfter usage) {
	perMillion := func(a, b usage) *float64 {
		if !a.known || !b.known || row.Count == 0 {
			return nil
		}
		seconds := (b.cpu - a.cpu).Seconds() / float64(row.Count) * 1e6
		return &seconds
	}
	row.CPU = perMillion(before, after)
	row.NATSCPU = perMillion(natsBefore, natsAfter)
	if after.known {
		row.PeakBytes = &after.peak
	}
}

// setOperations takes the rows, of which the first and the last are the echo
// service: the machine may have changed its pace in between, so the others
// are compared with the mean of the two.
func (r *Report) setOperations(rows []Row) {
	mean := (rows[0].Rate + rows[len(rows)-1].Rate) / 2
	for i := range rows {
		rows[i].Ratio = rows[i].Rate / mean
	}
	r.Operations = rows
}

func (r *Report) addBacklog(row BacklogRow) {
	r.Backlogs = append(r.Backlogs, row)
	added := &r.Backlogs[len(r.Backlogs)-1]
	added.Ratio = row.Rate / r.Backlogs[0].Rate
}

func (r *Report) setQueues(queues int, outs []outcome) {
	r.Queues = &QueuesRow{
		Queues:     queues,
		SinglePush: outs[0].rate(), SinglePop: outs[1].rate(),
		ManyPush: outs[2].rate(), ManyPop: outs[3].rate(),
	}
}

// Write prints the report as tables.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	clients := "clients"
	if r.Lean {
		clients = "lean clients"
	}
	fmt.Fprintf(&b, "%d B payload, %d %s over %d connections, %d priorities, %v each, %d CPUs, %s\n\n",
		r.Payload, r.Clients, clients, r.Connections, r.Priorities, r.Duration, r.CPUs, r.System)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	r.writeOperations(table)
	r.writeBacklogs(table)
	r.writeQueues(table)
	if err := table.Flush(); err != nil {
		return err
	}
	if slices.ContainsFunc(r.Operations, func(row Row) bool { return row.RanDry }) {
		b.WriteString("\n* the queue ran empty before the time was over\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) writeOperations(table io.Writer) {
	fmt.Fprintln(table, "operation\tops/s\tof echo\tp50\tp99\tp99.9\tCPU s/M ops\tpeak MB\tNATS CPU s/M ops\t")
	for _, row := range r.Operations {
		name := row.Name
		if row.RanDry {
			name += "*"
		}
		fmt.Fprintf(table, "%s\t%.0f\t%.2f\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name, row.Rate, row.Ratio,
			millis(row.P50), millis(row.P99), millis(row.P999),
			known(row.CPU, "%.1f"), megabytes(row.PeakBytes), known(row.NATSCPU, "%.1f"))
	}
}

func (r *Report) writeBacklogs(table io.Writer) {
	if len(r.Backlogs) == 0 {
		return
	}
	fmt.Fprintln(table, "\nbacklog\tpop.min/s\tof first\tpeak MB\trestart\t")
	for _, row := range r.Backlogs {
		fmt.Fprintf(table, "%d\t%.0f\t%.2f\t%s\t%s\t\n",
			row.Items, row.Rate, row.Ratio, megabytes(&row.Peak), millis(row.Restart))
	}
}

func (r *Report) writeQueues(table io.Writer) {
	q := r.Queues
	if q == nil {
		return
	}
	fmt.Fprintln(table, "\nqueues\tpush/s\tof one\tpop.min/s\tof one\t")
	fmt.Fprintf(table, "1\t%.0f\t1.00\t%.0f\t1.00\t\n", q.SinglePush, q.SinglePop)
	fmt.Fprintf(table, "%d\t%.0f\t%.2f\t%.0f\t%.2f\t\n", q.Queues,
		q.ManyPush, q.ManyPush/q.SinglePush, q.ManyPop, q.ManyPop/q.SinglePop)
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

func megabytes(bytes *int64) string {
	if bytes == nil || *bytes == 0 {
		return "n/a"
	}
	return fmt.Sprintf("%.0f", float64(*bytes)/1e6)
}

func known(value *float64, format string) string {
	if value == nil {
		return "n/a"
	}
	return fmt.Sprintf(format, *value)
}
