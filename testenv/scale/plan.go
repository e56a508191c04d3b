package main

import (
	"errors"
	"fmt"
	"io"
	"math"
)

// plan says what a rate of jobs needs. A job is a push, a lease and an acknowledgement.
type plan struct {
	rate, queues        float64
	processors          float64 // of a bridge, and of a NATS server
	load                float64 // share of processors, and of the room in batches, that may be used
	copies              float64 // of FoundationDB
	begin, read, commit float64 // milliseconds
}

// Systems that the plan goes by, beside the costs: the largest with one fdbserver, and with one of
// each class, with many queues and with one.
var (
	oneServer = shape{1, 1, 1024, 1000}
	classed   = shape{4, 1, 1024, 1000}
	classed1  = shape{4, 1, 128, 1}
)

// perJob adds up, over the operations of a job, what they take. A lease is one with its
// acknowledgement.
func perJob(of func(op string) float64) float64 { return of("push") + of("lease") }

// write answers.
func (p plan) write(w io.Writer, m *measurements) error {
	if !(p.rate > 0 && p.queues >= 1 && p.processors > 0 && p.load > 0 && p.load <= 1 &&
		p.copies >= 1 && p.begin >= 0 && p.read >= 0 && p.commit >= 0) {
		return errors.New("want numbers above 0, a load of at most 1, a queue and a copy")
	}

	lane, storage := p.oneQueue(m)
	if most := p.load * min(lane, storage); p.rate/p.queues > most {
		return fmt.Errorf("%.0f jobs a second are too many for %.0f queues: at most %.0f each",
			p.rate, p.queues, most)
	}
	n, b := p.bridges(m)
	if n == 0 {
		return fmt.Errorf("no number of bridges is enough for %v jobs a second", p.rate)
	}
	fmt.Fprintf(w, "%.0f jobs a second in %.0f queues, in batches of %.0f operations\n\n", p.rate,
		p.queues, b.operations)
	fmt.Fprintln(w, "| | processes | busy processors | hours for a billion jobs | network, MB/s | "+
		"disk, MB/s |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|")
	// A row says how many processes, how many processors they use, and bytes for a job.
	row := func(name string, number, busy, network, disk float64) {
		fmt.Fprintf(w, "| %s | %s | %.1f | %.0f | %s | %s |\n", name, unlessZero(math.Ceil(number)),
			busy, busy/p.rate*1e9/3600, unlessZero(network*p.rate/1e6), unlessZero(disk*p.rate/1e6))
	}

	sent := func(unit string) float64 {
		return perJob(func(op string) float64 { return m.values(oneServer, op)[unit] })
	}
	nats := sent("nats-tcp-B/item") // half of it to and from clients, half to and from bridges
	row("bridges", n, p.busy(m, "bridge", b, n), nats/2+sent("fdb-tcp-B/item"), 0)
	twice := 2 * p.busy(m, "nats", b, n) // in a cluster, a message goes through two servers
	row("NATS servers", twice/p.processors/p.load, twice, 2*nats, 0)
	for _, class := range []struct {
		name   string
		copies float64
	}{{"log", p.copies}, {"storage", p.copies}, {"commit_proxy", 1}, {"stateless", 1}} {
		of := func(unit string) float64 {
			return class.copies * perJob(func(op string) float64 {
				return m.class(class.name+unit, op, classed, b)
			})
		}
		busy := p.rate / 1e6 * of("-µs/item")
		row("fdbservers, "+class.name, busy/p.load, busy, 0, of("-disk-B/item"))
	}
	row("clients", 0, p.busy(m, "client", b, n), nats/2, 0)

	_, err := fmt.Fprintf(w, "\nOne queue: at most %.0f jobs a second in one lane, and %.0f on "+
		"one storage server\n", lane, storage)
	return err
}

// unlessZero is a number, rounded, if that is not 0.
func unlessZero(n float64) string {
	if math.Round(n) == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", n)
}

// interval is the time of a batch in a cluster with the latencies of the plan, in microseconds.
func (p plan) interval(m *measurements, b batch, ops ...string) float64 {
	rounds := 0.0
	for _, count := range m.counts {
		for _, op := range ops {
			if count.size == 100 && count.queues == 1 && count.op == op {
				rounds += count.values["rounds"]
			}
		}
	}
	cost := m.costs["lease"].batch
	return 1e3*(p.begin+rounds*p.read+p.commit) + cost.of(b) - cost[1]
}

// bridges returns how many bridges there have to be, and their batches; 0 if no number is enough.
func (p plan) bridges(m *measurements) (n float64, b batch) {
	for n = 1; n <= 1e4; n++ {
		lanes := lanesOfBridge * n
		b = batchOf(lanes, 1, p.queues)
		for range 100 { // a batch is what arrives during another
			every := p.interval(m, b, "push", "lease", "ack")
			arrived := p.rate / 1e6 * perJob(steps) / lanes * every
			b = batchOf(lanes, min(max(arrived, 1), maxBatch), p.queues)
		}

		thread := p.rate / 1e6 * perJob(func(op string) float64 {
			return m.costs[op].thread.of(b) * steps(op) / b.operations
		})
		if b.operations <= maxBatch*p.load && thread <= n*p.load &&
			p.busy(m, "bridge", b, n) <= n*p.processors*p.load {
			return n, b
		}
	}
	return 0, b
}

// busy is how many processors a kind of process uses.
func (p plan) busy(m *measurements, kind string, b batch, bridges float64) float64 {
	return p.rate / 1e6 * perJob(func(op string) float64 {
		return m.costs[op].perItem(kind, op, b, bridges)
	})
}

// oneQueue is how many jobs a second a queue can have: one lane leases them, in the largest
// batches, and one storage server writes all that is at the end of the queue.
func (p plan) oneQueue(m *measurements) (lane, storage float64) {
	b := batchOf(1, maxBatch, 1)
	storage = perJob(func(op string) float64 {
		return m.class("storage-µs/item", op, classed1, b)
	})
	return 1e6 * maxBatch / p.interval(m, b, "lease"), 1e6 / storage
}

// class is what a class of fdbservers takes for an item, in other batches than those that were
// measured: it changes as the processor time of all fdbservers does.
func (m *measurements) class(unit, op string, measured shape, b batch) float64 {
	c := m.costs[op]
	return m.values(measured, op)[unit] * c.perItem("fdb", op, b, 1) /
		c.perItem("fdb", op, measured.batch(op), 1)
}
