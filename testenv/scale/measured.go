package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// measuredRun is a line of the output of a benchmark.
type measuredRun struct {
	shape
	op     string
	size   float64            // of the batch, of BenchmarkCounts
	values map[string]float64 // by unit, means of several
	times  float64            // how many there were
}

// isInput reports whether the model goes by the run: one bridge and one fdbserver. The others show
// whether it predicts.
func (r *measuredRun) isInput() bool { return r.servers == 1 && r.bridges == 1 }

// measurements are the runs of a machine, and the counts.
type measurements struct {
	runs, counts []*measuredRun
	processors   float64          // of the machine
	costs        map[string]costs // by operation, once the runs are complete
}

// parse reads the output of the benchmarks. Runs of one name are averaged.
func parse(r io.Reader) (*measurements, error) {
	m := &measurements{processors: 1} // without a number in the names
	for scanner := bufio.NewScanner(r); scanner.Scan(); {
		fields := strings.Fields(scanner.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}

		run := &measuredRun{values: map[string]float64{}, times: 1}
		name, processors, _ := strings.Cut(fields[0], "-")
		if n, err := strconv.ParseFloat(processors, 64); err == nil {
			m.processors = n
		}
		parts := strings.Split(name, "/")
		for _, part := range parts[1:] {
			key, text, _ := strings.Cut(part, "=")
			n, err := strconv.ParseFloat(text, 64)
			into := map[string]*float64{"servers": &run.servers, "bridges": &run.bridges,
				"clients": &run.clients, "queues": &run.queues, "batch": &run.size}[key]
			switch {
			case key == "op":
				run.op = text
			case into == nil || err != nil:
				return nil, fmt.Errorf("%s: %q is not a number that a run has", fields[0], part)
			default:
				*into = n
			}
		}
		for i := 2; i+1 < len(fields); i += 2 {
			n, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", fields[0], err)
			}
			run.values[fields[i+1]] = n
		}
		if parts[0] == "BenchmarkCounts" {
			m.counts = append(m.counts, run)
		} else {
			m.add(run)
		}
	}
	if err := m.complete(); err != nil {
		return m, err
	}
	m.costs = map[string]costs{"push": m.fit("push"), "pop": m.fit("pop"), "lease": m.fit("lease")}
	return m, nil
}

// complete returns an error if a run is missing that the model goes by.
func (m *measurements) complete() error {
	needed := []shape{classed, classed1}
	for _, clients := range []float64{16, 128, 1024} {
		needed = append(needed, shape{1, 1, clients, 1}, shape{1, 1, clients, 1000})
	}
	for _, s := range needed {
		for _, op := range []string{"push", "pop", "lease"} {
			if m.values(s, op) == nil {
				return fmt.Errorf("no run of BenchmarkScale with servers=%v/bridges=%v/clients=%v/"+
					"queues=%v/op=%s", s.servers, s.bridges, s.clients, s.queues, op)
			}
		}
	}
	return nil
}

// values are what was measured of a system.
func (m *measurements) values(s shape, op string) map[string]float64 {
	for _, run := range m.runs {
		if run.op == op && run.shape == s {
			return run.values
		}
	}
	return nil
}

// kindOf says which kind of process a unit is the processor time of, "" if of none.
func kindOf(unit string) string {
	name, ok := strings.CutSuffix(unit, "-µs/item")
	switch name {
	case "client", "nats", "bridge":
		return name
	case "thread", "machine", "stolen": // of a bridge; of all; of none
		return ""
	}
	if !ok {
		return ""
	}
	return "fdb" // by class
}

// fit fits the costs of an operation to the runs that are input.
func (m *measurements) fit(op string) costs {
	var batches []batch
	var times, thread []float64
	processor := map[string][]float64{}
	for _, run := range m.runs {
		if !run.isInput() || run.op != op {
			continue
		}

		b := run.batch(op)
		batches = append(batches, b)
		used, all := map[string]float64{}, 0.0
		for unit, value := range run.values {
			if kind := kindOf(unit); kind != "" {
				used[kind] += value
				all += value
			}
		}
		busy := busiest(all, used["fdb"], m.processors, run.servers)
		own := alone(1e6/run.values["items/s"], busy)
		times = append(times, own*b.lanes*b.operations/steps(op))
		thread = append(thread, run.values["thread-µs/item"]*b.operations/steps(op))
		for kind, value := range used {
			processor[kind] = append(processor[kind], value*b.operations/steps(op))
		}
	}

	c := costs{fit(batches, times), map[string]sum{}, fit(batches, thread)}
	for kind, values := range processor {
		c.processor[kind] = fit(batches, values)
	}
	return c
}

// check writes a table of what the model predicts and what was measured, without its input.
func (m *measurements) check(w io.Writer) error {
	fmt.Fprintln(w, "| fdbservers | bridges | clients | queues | | predicted | measured | ratio |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|")
	var within, all int
	off := 0.0 // the input, at most
	for _, run := range m.runs {
		rate := m.costs[run.op].predict(run.shape, run.op, m.processors)
		ratio := rate / run.values["items/s"]
		if run.isInput() {
			off = max(off, math.Abs(ratio-1))
			continue
		}

		if all++; math.Abs(ratio-1) <= 0.25 {
			within++
		}
		fmt.Fprintf(w, "| %v | %v | %v | %v | %s | %.0f | %.0f | %.2f |\n", run.servers,
			run.bridges, run.clients, run.queues, run.op, rate, run.values["items/s"], ratio)
	}
	_, err := fmt.Fprintf(w, "\n%d of %d predictions are within a quarter, and all input is "+
		"within %.0f %%.\n", within, all, 100*off)
	return err
}

// add adds a run, or makes the mean with others of its name.
func (m *measurements) add(run *measuredRun) {
	for _, other := range m.runs {
		if other.shape == run.shape && other.op == run.op {
			other.times++
			for unit, mean := range other.values {
				other.values[unit] += (run.values[unit] - mean) / other.times
			}
			return
		}
	}
	m.runs = append(m.runs, run)
}
