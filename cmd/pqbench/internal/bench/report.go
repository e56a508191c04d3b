package bench

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
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
	Rounds      int           `json:"rounds"`
	Sync        time.Duration `json:"sync,omitempty"` // of a small write to disk, where the store is
	Operations  []Row         `json:"operations"`
	Naive       *NaiveRow     `json:"naive,omitempty"`
	Bridges     []BridgesRow  `json:"bridges,omitempty"`
	Backlogs    []BacklogRow  `json:"backlogs,omitempty"`
	Queues      *QueuesRow    `json:"queues,omitempty"`
	Idle        *IdleRow      `json:"idle,omitempty"`
	Waiters     []WaitersRow  `json:"waiters,omitempty"`
	Leased      *LeasedRow    `json:"leased,omitempty"`
	Delayed     *DelayedRow   `json:"delayed,omitempty"`
}

// Row is one operation. Unknown values are nil.
type Row struct {
	Name      string        `json:"name"`
	Count     int64         `json:"count"`
	Rate      float64       `json:"rate"`
	P50       time.Duration `json:"p50"`
	P99       time.Duration `json:"p99"`
	P999      time.Duration `json:"p999"`
	Ratio     float64       `json:"ratio"` // rate over that of the echo service
	RanDry    bool          `json:"ran_dry,omitempty"`
	CPU       *float64      `json:"cpu,omitempty"`      // seconds of the service's processor time per million operations
	NATSCPU   *float64      `json:"nats_cpu,omitempty"` // the NATS server's
	FDBCPU    *float64      `json:"fdb_cpu,omitempty"`  // fdbserver's
	PeakBytes *int64        `json:"peak_bytes,omitempty"`
	// Stolen is the share of all processors that the host of a virtual machine gave to others meanwhile. Rows with
	// different shares cannot be compared.
	Stolen *float64 `json:"stolen,omitempty"`
}

// Names of rows that comparisons use.
const (
	rowEcho      = "echo"
	rowPush      = "push"
	rowPopMin    = "pop.min"
	rowNaivePush = "naive push"
	rowNaivePop  = "naive pop"
)

// NaiveRow compares the service with programs that use the published recipe.
type NaiveRow struct {
	Push float64 `json:"push"` // rate of the service's push over that of the recipe's
	Pop  float64 `json:"pop"`  // rate of the service's pop.min over that of the recipe's
}

// BridgesRow is push and pop.min on one queue with a number of bridges. Memory is the sum
// over all bridges.
type BridgesRow struct {
	Bridges   int     `json:"bridges"`
	Push      Row     `json:"push"`
	Pop       Row     `json:"pop"`
	PushRatio float64 `json:"push_ratio"` // rate over that of the first row, see setBridges
	PopRatio  float64 `json:"pop_ratio"`
	Wasted    float64 `json:"wasted"` // share of the transactions while popping that conflicted
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
		Rounds:      o.Rounds,
	}
}

func newRow(m *measured) Row {
	quantile := func(p float64) time.Duration {
		return time.Duration(m.out.latency.ValueAtQuantile(p))
	}
	row := Row{
		Name: m.name, Count: m.out.items, Rate: m.out.rate(), RanDry: m.out.dry,
		P50: quantile(50), P99: quantile(99), P999: quantile(99.9),
	}
	for i, cpu := range []**float64{&row.CPU, &row.NATSCPU, &row.FDBCPU}[:len(m.used)] {
		if m.used[i].Known && row.Count > 0 {
			seconds := m.used[i].CPU.Seconds() / float64(row.Count) * 1e6
			*cpu = &seconds
		}
	}
	if m.used[0].Known {
		row.PeakBytes = &m.used[0].Peak
	}
	if m.all.All > 0 {
		stolen := float64(m.all.Stolen) / float64(m.all.All)
		row.Stolen = &stolen
	}
	return row
}

// setOperations adds the operations, of which the first is the echo service.
func (r *Report) setOperations(all []*measured) {
	rates := map[string]float64{}
	for _, m := range all {
		row := newRow(m)
		row.Ratio = row.Rate / all[0].out.rate()
		r.Operations = append(r.Operations, row)
		rates[row.Name] = row.Rate
	}
	if push, pop := rates[rowNaivePush], rates[rowNaivePop]; push > 0 && pop > 0 {
		r.Naive = &NaiveRow{Push: rates[rowPush] / push, Pop: rates[rowPopMin] / pop}
	}
}

// setBridges adds the rows. It compares each with the mean of those that have as many
// bridges as the first.
func (r *Report) setBridges(rows []BridgesRow) {
	var pushes, pops, n float64
	for _, row := range rows {
		if row.Bridges == rows[0].Bridges {
			pushes, pops, n = pushes+row.Push.Rate, pops+row.Pop.Rate, n+1
		}
	}
	for i := range rows {
		rows[i].PushRatio = rows[i].Push.Rate / (pushes / n)
		rows[i].PopRatio = rows[i].Pop.Rate / (pops / n)
	}
	r.Bridges = rows
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
	r.writeHead(&b)
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	r.writeOperations(table)
	r.writeNaive(table)
	r.writeBridges(table)
	r.writeBacklogs(table)
	r.writeQueues(table)
	r.writeRest(table)
	r.writeLeased(table)
	r.writeDelayed(table)
	if err := table.Flush(); err != nil {
		return err
	}
	if r.ranDry() {
		b.WriteString("\n* the queue ran empty before its time was up\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeHead prints with what the benchmark was run.
func (r *Report) writeHead(b *strings.Builder) {
	clients := "clients"
	if r.Lean {
		clients = "lean clients"
	}
	fmt.Fprintf(b, "%d B payload, %d %s over %d connections, %d priorities, %v each in %d rounds, %d CPUs, %s",
		r.Payload, r.Clients, clients, r.Connections, r.Priorities, r.Duration, r.Rounds, r.CPUs, r.System)
	if r.Sync > 0 {
		fmt.Fprintf(b, ", sync %s", millis(r.Sync))
	}
	b.WriteString("\n\n")
}

func (r *Report) ranDry() bool {
	dry := func(row Row) bool { return row.RanDry }
	return slices.ContainsFunc(r.Operations, dry) ||
		slices.ContainsFunc(r.Bridges, func(row BridgesRow) bool { return row.Pop.RanDry })
}

func (row *Row) label(name string) string {
	if row.RanDry {
		return name + "*"
	}
	return name
}

func (r *Report) writeOperations(table io.Writer) {
	fmt.Fprintln(table, "operation\tops/s\tof echo\tp50\tp99\tp99.9\tCPU s/M ops\tpeak MB\tNATS CPU s/M ops\tFDB CPU s/M ops\tstolen\t")
	for _, row := range r.Operations {
		fmt.Fprintf(table, "%s\t%.0f\t%.2f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", row.label(row.Name), row.Rate, row.Ratio,
			millis(row.P50), millis(row.P99), millis(row.P999),
			orUnknown(row.CPU, "%.1f"), megabytes(row.PeakBytes), orUnknown(row.NATSCPU, "%.1f"), orUnknown(row.FDBCPU, "%.1f"), percent(row.Stolen))
	}
}

func (r *Report) writeNaive(table io.Writer) {
	if r.Naive == nil {
		return
	}
	fmt.Fprintln(table, "\noperation\tof naive\t")
	fmt.Fprintf(table, "%s\t%.2f\t\n%s\t%.1f\t\n", rowPush, r.Naive.Push, rowPopMin, r.Naive.Pop)
}

func (r *Report) writeBridges(table io.Writer) {
	if len(r.Bridges) == 0 {
		return
	}
	fmt.Fprintln(table, "\nbridges\tpush/s\tof first\tpop.min/s\tof first\tp50\tp99\twasted\tCPU s/M pops\tNATS\tFDB\tpeak MB\t")
	for _, row := range r.Bridges {
		pop := &row.Pop
		fmt.Fprintf(table, "%s\t%.0f\t%.2f\t%.0f\t%.2f\t%s\t%s\t%.1f %%\t%s\t%s\t%s\t%s\t\n",
			pop.label(strconv.Itoa(row.Bridges)), row.Push.Rate, row.PushRatio, pop.Rate, row.PopRatio, millis(pop.P50), millis(pop.P99), 100*row.Wasted,
			orUnknown(pop.CPU, "%.1f"), orUnknown(pop.NATSCPU, "%.1f"), orUnknown(pop.FDBCPU, "%.1f"), megabytes(pop.PeakBytes))
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

func orUnknown(value *float64, format string) string {
	if value == nil {
		return "n/a"
	}
	return fmt.Sprintf(format, *value)
}

func percent(share *float64) string {
	if share == nil {
		return "n/a"
	}
	return fmt.Sprintf("%.0f %%", 100**share)
}
