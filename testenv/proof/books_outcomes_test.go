package proof_test

import (
	"fmt"
	"testing"
)

// Books know what became of jobs in a queue that keeps them.
func TestBooksOfOutcomes(t *testing.T) {
	const (
		held  = "push; lease 1 1 9; "
		over  = "push; lease 1 1 0; "
		acked = held + "ack 1 result=r; "
		again = acked + "rerun moved=b; "
		dead  = held + "term 1; "
		// A client that extends as JetStream does not learn until when, only the length: 9 s.
		extended = held + "extend 1 wait=9s until=0 jetstream=true; "

		one     = `next=[{"queue":"o-jobs","value":"1"}] `
		two     = `next=[{"queue":"o-jobs","value":"1"},{"queue":"o-jobs","value":"2"}] `
		letters = dead + "push 1; lease 1 1 9 of=1; term 1 of=1; " +
			"push 2; lease 1 1 9 of=2; term 1 of=2; " +
			"lease 1 1 9 queue=o-jobs-dead as=letter; lease 1 1 9 of=1 queue=o-jobs-dead as=b; " +
			"next 1 queue=o-jobs-dead with=1 result=r got=2 "

		both = "push; push 1; hold 0 1 batch=2 for=9s; "
	)

	lost := "push; " // forty leases, the acknowledgement of each without an answer
	for n := 1; n <= 40; n++ {
		lost += fmt.Sprintf("lease %d %[1]d 0; ack %[1]d result=r lost; ", n)
	}

	testBooksOf(t, "o-jobs", map[string]pageTest{
		"done":         {"", acked + "ask state=done result=r; done result=r"},
		"no result":    {"", held + "ack 1; ask state=done; done"},
		"in the queue": {"", "push; ask state=ready; lease 1 1 9; ask state=leased; left"},
		"delayed":      {"", "push delay=1m; ask state=delayed; later 2m; left"},
		"moved": {"",
			"push; move moved=b; lease 1 1 9 as=b; ack 1 result=r; done result=r"},
		"dead":          {"", dead + "ask state=dead; left queue=o-jobs-dead"},
		"removed":       {"", "push; remove; ask empty"},
		"history gone":  {"", acked + "remove state=done; ask empty"},
		"not gone":      {"", acked + "remove empty; done result=r"},
		"run again":     {"", again + "lease 1 1 9 as=b; ack 1 result=s; done result=s"},
		"not run again": {"", acked + "rerun lost; ask state=done result=r; done result=r"},
		"back": {"",
			dead + "rerun queue=o-jobs-dead moved=b; lease 1 1 9 as=b; ack 1; done"},
		"dead, and acknowledged": {"", dead + "lease 1 1 9 queue=o-jobs-dead as=letter; " +
			"ack 1 queue=o-jobs-dead result=r not_kept=[0]; ask empty"},
		"dead, and the first message of the answer lost": {"",
			letters + "lost; left 2 queue=o-jobs-dead; ask empty"},
		"counted without answer": {"", held + "ack 1 result=r lost; done result=r"},
		"had no effect": {"",
			over + "ack 1 result=r lost; lease 2 2 9; ack 2 result=s; done result=s"},
		"again": {"",
			held + "ack 1 result=r lost; ack 1 result=s stale acked=[0]; done result=r"},
		"the second counted": {"", held + "ack 1 result=r lost; ack 1 result=s; done result=s"},
		"successors":         {"", held + "ack 1 " + two + "; left 1 2; done"},
		"successors without answer": {"",
			held + "ack 1 lost " + two + "; left 1 2; done"},
		"neither":        {"", held + "ack 1 lost " + two + "; left 0"},
		"both":           {"", both + "ack 1 with=1 lost; done; done 1"},
		"none":           {"", both + "ack 1 with=1 lost; left 0 1"},
		"waited":         {"", "push; ask state=ready expires=1s end=1s; left"},
		"done meanwhile": {"", acked + "ask state=done result=r expires=1m; done result=r"},
		"lease was over": {"", over + "later 1s; ask state=ready; left"},
		"extended by a slow clock, over by a fast one": {"",
			extended + "later 7980ms; lease 2 2 9; left"},
		"maybe leased": {"", "push; fetch lost; ask state=leased; left"},
		"of a lost lease": {"no order",
			over + "lease 2 2 9; ack 1 result=r stale; ack 2 result=s; done result=r"},
		"never acknowledged": {"no order", held + "done"},
		"said too early":     {"no order", held + "ask state=done; ack 1; done"},
		"result lost":        {"no order", acked + "done"},
		"result changes": {"no order",
			acked + "ack 1 result=s stale acked=[0]; ask state=done result=s; done result=r"},
		"done, and there": {"no order", acked + "ask state=ready; done result=r"},
		"in two places":   {"no order", acked + "left; done result=r"},
		"not kept":        {"no order", held + "ack 1 result=r"},
		"lost":            {"no order", "push"},
		"not found":       {"no order", "push; ask empty; left"},
		"not found, done": {"no order", acked + "ask empty; done result=r"},
		"dead, and done":  {"no order", dead + "done"},
		"record stays": {"no order",
			again + "ask state=done result=r; left"},
		"record stays in the end": {"no order", again + "left; done result=r"},
		"old token":               {"no order", over + "lease 2 2 9; ack 1; done"},
		"extended, and held by two": {"no order",
			extended + "later 7970ms; lease 2 2 9; left"},
		"lost often, and found":       {"", lost + "done result=r"},
		"lost often, and never there": {"no order", lost + "ask empty; left"},
		"held by two":                 {"no order", held + "lease 2 2 9; ack 2; done"},
		"lost, and not": {"no order",
			held + "ack 1 stale; left"},
		"done by another lease": {"no order",
			over + "lease 2 2 9; ack 2; ack 1 stale acked=[0]; done"},
		"successor of a lost lease": {"no order",
			over + "lease 2 2 9; ack 1 stale " + one + "; left 0 1"},
		"successor of a job that goes on": {"no order", held + "ack 1 lost " + one + "; left 0 1"},
		"no successor":                    {"no order", held + "ack 1 " + one + "; done"},
		"no successor, but done":          {"no order", held + "ack 1 lost " + one + "; done"},
		"half of the successors": {"1 of 2 successors",
			held + "ack 1 lost " + two + "; left 1; done"},
		"half of the leases": {"counted for some", both + "ack 1 with=1 lost; left 1; done"},
		"waited too briefly": {"told ready after", "push; ask state=ready expires=1m; left"},
		"waited for nothing": {"no order",
			"push; lease 1 1 60; ack 1 begin=30s; ask state=leased expires=40s begin=40s; done"},
		"said not to be kept": {"want true", held + "ack 1 result=r not_kept=[0]; done result=r"},
		"another job":         {"two ids", "push; ask state=ready job=other; left"},
		"dead letter kept, next": {"want false",
			letters + "; left 2 queue=o-jobs-dead; ask empty"},
		"dead letter kept": {"want false", dead + "lease 1 1 9 queue=o-jobs-dead as=letter; " +
			"ack 1 queue=o-jobs-dead result=r"},
	})
}
