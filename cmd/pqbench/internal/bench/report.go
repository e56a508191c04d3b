package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is the result of a benchmark: one row for whatever was measured.
type Report struct {
	Setup
	Rows []Row
	// Notes are printed below the table.
	Notes []string
}

// Setup says with what the rows were measured. Times are in microseconds.
type Setup struct {
	Time        time.Time `json:"time"`
	System      string    `json:"system"`
	CPUs        int       `json:"cpus"`
	Payload     int       `json:"payload"`
	Clients     int       `json:"clients"`
	Connections int       `json:"connections"`
	Priorities  int       `json:"priorities"`
	Seconds     float64   `json:"seconds"`
	Rounds      int       `json:"rounds"`
	// Sync is how long the disk takes to sync a small write, where the store is.
	Sync float64 `json:"sync_us,omitempty"`
}

// Row is what was measured of one operation. Times are in microseconds, and unknown values nil.
type Row struct {
	Name  string  `json:"name"`
	Queue string  `json:"queue,omitempty"` // whose operation it is, among peers
	Items int64   `json:"items"`
	Rate  float64 `json:"rate"`  // items per second
	Ratio float64 `json:"ratio"` // rate over that of the echo service
	P50   float64 `json:"p50_us"`
	P99   float64 `json:"p99_us"`
	// Processor time for each item: of this program, of what serves the operation, of the NATS
	// server, and of fdbserver.
	Client  *float64 `json:"client_us,omitempty"`
	Service *float64 `json:"service_us,omitempty"`
	NATS    *float64 `json:"nats_us,omitempty"`
	FDB     *float64 `json:"fdb_us,omitempty"`
	// Stolen is the share of all processors that the host of a virtual machine gave to others
	// meanwhile. Rows with different shares cannot be compared.
	Stolen *float64 `json:"stolen,omitempty"`
	RanDry bool     `json:"ran_dry,omitempty"`
	Extra  []Figure `json:"extra,omitempty"`
}

// The users of processor time.
const (
	userClient  = "client"
	userService = "service"
	userNATS    = "NATS"
	userFDB     = "FDB"
)

// Figure is something that only some rows have.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
}

func (f Figure) String() string {
	digits := 2
	if f.Value == math.Trunc(f.Value) || math.Abs(f.Value) >= 100 {
		digits = 0
	}
	return strings.TrimSpace(fmt.Sprintf("%s %.*f %s", f.Name, digits, f.Value, f.Unit))
}

// times is how often as fast a row is as another.
func times(rate float64, name string, other float64) Figure {
	return Figure{Name: "of " + name, Value: rate / other}
}

func inMillis(name string, d time.Duration) Figure {
	return Figure{Name: name, Value: float64(d) / float64(time.Millisecond), Unit: "ms"}
}

func inPercent(name string, share float64) Figure {
	return Figure{Name: name, Value: 100 * share, Unit: "%"}
}

func inMegabytes(name string, bytes int64) Figure {
	return Figure{Name: name, Value: float64(bytes) / 1e6, Unit: "MB"}
}

func newReport(o Options) *Report {
	return &Report{Setup: Setup{
		Time:        time.Now().UTC().Truncate(time.Second),
		System:      runtime.GOOS + "/" + runtime.GOARCH + " " + runtime.Version(),
		CPUs:        runtime.NumCPU(),
		Payload:     o.Payload,
		Clients:     o.Clients,
		Connections: o.Connections,
		Priorities:  o.Priorities,
		Seconds:     o.Duration.Seconds(),
		Rounds:      o.Rounds,
	}}
}

// rate returns that of a row, 0 if it was not measured.
func (r *Report) rate(name string) float64 {
	for _, row := range r.Rows {
		if row.Name == name {
			return row.Rate
		}
	}
	return 0
}

// WriteJSON writes an object for each row, one a line, with the setup in each.
func (r *Report) WriteJSON(w io.Writer) error {
	lines := json.NewEncoder(w)
	for _, row := range r.Rows {
		if err := lines.Encode(struct {
			Setup
			Row
		}{r.Setup, row}); err != nil {
			return err
		}
	}
	return nil
}

// column is a column of the table; without a value in any row it is left out.
type column struct {
	title string
	value func(row Row) string // "" if the row has none
}

var columns = []column{
	{"operation", func(row Row) string {
		if row.RanDry {
			return row.Name + "*"
		}
		return row.Name
	}},
	{"queue", func(row Row) string { return row.Queue }},
	{"per second", func(row Row) string { return number("%.0f", row.Rate) }},
	{"of echo", func(row Row) string { return number("%.2f", row.Ratio) }},
	{"p50 ms", func(row Row) string { return number("%.2f", row.P50/1e3) }},
	{"p99 ms", func(row Row) string { return number("%.2f", row.P99/1e3) }},
	{"client µs", func(row Row) string { return known("%.1f", row.Client, 1) }},
	{"service µs", func(row Row) string { return known("%.1f", row.Service, 1) }},
	{"NATS µs", func(row Row) string { return known("%.1f", row.NATS, 1) }},
	{"FDB µs", func(row Row) string { return known("%.1f", row.FDB, 1) }},
	{"stolen", func(row Row) string { return known("%.0f %%", row.Stolen, 100) }},
}

// number is text for a value, "" for 0.
func number(format string, value float64) string {
	if value == 0 {
		return ""
	}
	return fmt.Sprintf(format, value)
}

func known(format string, value *float64, factor float64) string {
	if value == nil {
		return ""
	}
	return fmt.Sprintf(format, *value*factor)
}

// Write prints the table.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d B payload, %d clients over %d connections, %d priorities, %v s each in %d rounds, %d CPUs, %s",
		r.Payload, r.Clients, r.Connections, r.Priorities, r.Seconds, r.Rounds, r.CPUs, r.System)
	if r.Sync > 0 {
		fmt.Fprintf(&b, ", sync %.2f ms", r.Sync/1e3)
	}
	b.WriteString("\n\n")

	shown := slices.DeleteFunc(slices.Clone(columns), func(c column) bool {
		return !slices.ContainsFunc(r.Rows, func(row Row) bool { return c.value(row) != "" })
	})
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, c := range shown {
		fmt.Fprint(table, c.title, "\t")
	}
	fmt.Fprintln(table)
	for _, row := range r.Rows {
		for _, c := range shown {
			fmt.Fprint(table, c.value(row), "\t")
		}
		for i, figure := range row.Extra {
			fmt.Fprint(table, []string{"  ", ", "}[min(i, 1)], figure)
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return err
	}

	if slices.ContainsFunc(r.Rows, func(row Row) bool { return row.RanDry }) {
		b.WriteString("\n* the queue ran empty before its time was up\n")
	}
	if len(r.Notes) > 0 {
		b.WriteString("\n" + strings.Join(r.Notes, "\n") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
