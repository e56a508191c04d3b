package main

import (
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/load"
)

func TestBench(t *testing.T) {
	c, _ := newCLI(t)
	table := c.ok("", "bench", "try", "--count", "100", "--clients", "4", "--connections", "2", "--verify")
	for _, want := range []string{"mixed of queue try", "push", "pop", "p99.9", "0 lost, 0 duplicates"} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is not in\n%s", want, table)
		}
	}
	for line := range strings.Lines(table) {
		if len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	var report load.Report
	decode(t, c.ok("", "bench", "try", "push", "--count", "50", "--clients", "4", "--size", "100-200", "--json"), &report)
	if len(report.Operations) != 1 || report.Operations[0].Count != 50 {
		t.Errorf("%+v", report)
	}
	c.prints("50\n", "len", "try")
	decode(t, c.ok("", "bench", "try", "pop", "--json"), &report)
	if !report.RanDry || report.Operations[0].Count != 50 {
		t.Errorf("%+v", report)
	}
	c.ok("", "push", "try", "precious")
	c.fails(exitError, "did not push", "bench", "try")
}

func TestBenchMistakes(t *testing.T) {
	c := &cli{t: t, server: "nats://127.0.0.1:1"}
	for _, m := range []struct{ words, args string }{
		{"QUEUE is missing", "bench"},
		{`mode "pull"`, "bench try pull"},
		{"bad queue name", "bench a.b"},
		{"--size", "bench try --size big"},
		{"size is 1 to 1", "bench try --size 1"},
		{"at least one client each", "bench try --clients 1 --connections 2"},
		{"priorities is 0", "bench try --priorities 0"},
		{"rate is -1", "bench try --rate -1"},
		{"one of them above 0", "bench try --duration 0"},
		{"nothing to compare", "bench try pop --verify"},
	} {
		c.fails(exitUsage, m.words, strings.Fields(m.args)...)
	}
	c.fails(exitError, "127.0.0.1:1", "bench", "try")
}
