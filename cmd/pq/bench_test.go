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
