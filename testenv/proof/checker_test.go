package proof_test

import (
	"path/filepath"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/testenv/proof"
)

// historyOf returns the history of a script, which ends with a pop of the empty queue.
func historyOf(t *testing.T, script string) *proof.History {
	p := newPage(t)
	p.history = &proof.History{Name: "script", OneByOne: true}
	p.write(script + "; later 1h; pop empty")
	return p.history
}

func testHistories(t *testing.T, tests map[string]pageTest) {
	testPages(t, tests,
		func(t *testing.T, script string) error { return historyOf(t, script).Check(checkTimeout) })
}

// The rows have a fault and a script, as those of TestBooks do.

// The history of a working queue passes, whatever became of requests without an answer.
func TestCheckerAccepts(t *testing.T) { testHistories(t, workingScripts()) }

func workingScripts() map[string]pageTest {
	const half = "push; push 1; lease 1 1 9; lease 1 1 99 of=1; later 20s; lease 2 2 9; "
	return map[string]pageTest{
		"in order": {"",
			"push; push 1; push 2 priority=-1; peek 2; len 3; pop 2; pop 1 kind=pop.max; pop"},
		"in turn": {"",
			"push group=x; push 1 group=x at=3; push 2 group=y at=2; pop; pop 2; pop 1"},
		"delayed":                       {"", "push delay=5s; len 0; pop empty; later 9s; pop"},
		"delayed, and in its place":     {"", "push delay=5s; push 1; later 9s; pop; pop 1"},
		"expired":                       {"", "push ttl=5s; peek; len 1; later 9s; len 0"},
		"leased, expired, acknowledged": {"", "push ttl=5s; lease 1 1 60; later 9s; ack 1"},
		"leased, expired, lost":         {"", "push ttl=5s; lease 1 1 2; later 9s; ack 1 stale"},
		"lease over": {"",
			"push; push 1; lease 1 1 2; later 5s; lease 2 2 9; ack 1 stale; ack 2; pop 1"},
		"given back": {"", "push; push 1; lease 1 1 9; nak 1; lease 3 2 9; ack 3; pop 1"},
		"given back for later": {"",
			"push; lease 1 1 9; nak 1 delay=5s; pop empty; later 9s; lease 3 2 9; ack 3"},
		"snoozed": {"", "push; lease 1 1 9; snooze 1; lease 3 1 9; ack 3"},
		"extended": {"",
			"push; lease 1 1 2; extend 1 wait=20s; later 9s; pop empty; later 20s; pop"},
		"next":                {"", "push; push 1; lease 1 1 9; next 1 got=1; ack 1 of=1"},
		"one of several lost": {"", half + "ack 1 with=1 stale lost=[0]; ack 2; ack 1 of=1"},

		"overlapping pops":         {"", "push; push 1; pop 1 end=9s; pop"},
		"push without answer":      {"", "push lost; pop empty; pop"},
		"push without effect":      {"", "push lost; pop empty"},
		"pop without answer":       {"", "push; pop unknown; pop empty"},
		"pop without answer, back": {"", "push; push 1; pop unknown; pop 1; pop"},
		"pop without answer, again": {"",
			"push; push 1; pop unknown; push 2; pop 1; pop 2; pop at=9"},
		"lease without answer": {"", "push; fetch lost; pop empty; later 1m; lease 2 2 9; ack 2"},
		"ack without effect":   {"", "push; lease 1 1 9; ack 1 lost; later 1m; pop"},
		"nak without effect": {"",
			"push; lease 1 1 2; nak 1 unknown; later 9s; lease 2 2 9; ack 2"},
		"snooze without answer": {"", "push; lease 1 1 9; snooze 1 unknown; lease 3 1 9; ack 3"},
		"extended without answer": {"",
			"push; lease 1 1 2; extend 1 wait=9s lost; later 5s; pop empty; later 9s; pop"},
		"extended without effect": {"",
			"push; lease 1 1 2; extend 1 wait=9s lost; later 5s; pop"},
		"several acks without answer": {"", "push; push 1; hold 0 1; ack 1 with=1 lost"},
		"several acks without effect": {"",
			"push; push 1; hold 0 1; ack 1 with=1 lost; later 2m; pop; pop 1"},

		"two transactions": {"",
			"push 1 at=5; push at=3 priority=-1; hold 1 0 begin=1s spread=true; later 1h; " +
				"take 0 1"},
		"pulled nothing":   {"", "fetch empty spread=true; push; pop"},
		"408 says nothing": {"", "push; fetch empty spread=true expires=1us; pop"},
		"no end": {"",
			"push; push 1; hold 0 lost spread=true batch=2; later 1h; take 0 1"},
		"extended by a pull": {"",
			"push; lease 1 1 2; extend 1 wait=20s until=0; later 9s; pop empty; later 20s; pop"},
		"+NXT, the ack without end": {"",
			"push; push 1; lease 1 1 9; ack 1 lost; hold 1 spread=true batch=1; later 1h; take 1"},

		"successor":         {"", parent + "ack 1 " + next + "; push 2 at=9; pop 1 at=8; pop 2"},
		"successor of +NXT": {"", parent + "next 1 empty " + next + "; pop 1 at=8"},
		"popped first":      {"", parent + "ack 1 end=9s " + next + "; pop 1 at=8"},
		"seen first": {"",
			parent + "ack 1 end=9s " + next + "; peek 1 at=8; pop 1 at=8"},
		"successor counted, popped without answer": {"",
			parent + "ack 1 " + next + "; len 1; pop lost; pop empty"},
		"successor leased without answer": {"", parent + "ack 1 " + next + "; fetch lost"},
		"ack of successor without effect": {"", parent + "ack 1 lost " + next + "; later 1m; pop"},
		"successor in doubt":              {"", parent + "ack 1 lost " + next + "; pop 1 at=8"},
		"no successor of a lost lease": {"",
			parent + "later 1m; lease 2 2 9; ack 1 stale " + next + "; ack 2"},
		"successor in another queue": {"",
			parent + "ack 1 " + elsewhere + "; pop 1 at=8 queue=others"},
	}
}

// What scripts of successors begin with, and the successor.
const (
	parent    = "push; lease 1 1 9; "
	next      = `next=[{"queue":"jobs","value":"1"}]`
	elsewhere = `next=[{"queue":"others","value":"1"}]`
)

// Each kind of fault is found that books do not find, and they are asked.
func TestCheckerFinds(t *testing.T) { testHistories(t, faultyScripts()) }

func faultyScripts() map[string]pageTest {
	const wrong = "not linearizable"
	return map[string]pageTest{
		"swapped pops":           {wrong, "push; push 1; pop 1; pop"},
		"wrong priority":         {"has priority 0", "push; pop 1; push 1 priority=1"},
		"doubled pop":            {"settled twice", "push; pop; pop"},
		"stale peek":             {wrong, "push; push 1; pop; peek; pop 1"},
		"wrong peek":             {wrong, "push; push 1; peek 1; pop; pop 1"},
		"wrong len":              {wrong, "push; len 2; pop"},
		"nothing counted":        {wrong, "push; len 0; pop"},
		"wrong place":            {wrong, "push at=5; push 1 at=3; pop 1; pop"},
		"wrong place in a group": {wrong, "push group=x at=5; push 1 group=x at=3; pop 1; pop"},
		"no group, before one":   {wrong, "push group=x at=5; push 1 at=3; pop 1; pop"},
		"overlapping, and lost": {
			wrong,
			"push; pop empty begin=1ms end=9s; pop 0 end=9s begin=1ms; pop empty end=9s; push 1; " +
				"pop empty; pop 1",
		},

		"new place, unanswered": {"stored again", "push; push 1; pop lost; pop at=8; pop 1 at=9"},
		"leased and counted":    {wrong, "push; lease 1 1 9; len 1; ack 1"},
		"delay over late":       {wrong, "push delay=2s; later 9s; pop empty; pop"},
		"lease over late":       {wrong, "push; push 1; lease 1 1 2; later 9s; pop 1; pop"},

		"expired early":      {wrong, "push ttl=9s; pop empty"},
		"expired and peeked": {"expired, and served", "push ttl=5s; later 9s; peek"},

		"a lease of another length": {"is over at", "push; lease 1 1 9 wait=1m; ack 1"},
		"extended by too little": {"is over at",
			"push; lease 1 1 9; extend 1 wait=9s until=1; later 1m; pop"},
		"lost while it is held": {"said to be lost, and not",
			"push; lease 1 1 9; pop lost; ack 1 stale; later 1m; pop"},

		"two transactions as one": {wrong,
			"push 1 at=5; push at=3 priority=-1; hold 1 0 begin=1s; later 1h; take 0 1"},
		"in the wrong order": {wrong,
			"push; push 1; hold 1 spread=true batch=1; later 1h; take 0 1"},
		"404 though there is one": {wrong, "push; fetch empty spread=true; pop"},
		"few though there is one": {wrong, "push; push 1; hold 0 spread=true; later 1h; take 0 1"},

		"values have changed places": {"one id", "push; push 1; pop at=2; pop 1 at=1"},
		"values have changed places after a pop without answer": {"one id",
			"push; push 1; pop lost; pop at=2; pop empty"},
		"delivered for another": {"settled twice", "push; push 1; pop; pop at=2"},

		"successor lost":    {"lost: ", parent + "ack 1 " + next},
		"successor of +NXT": {"lost: ", parent + "next 1 empty " + next},
		"successor lost from another queue": {"lost: ",
			parent + "ack 1 " + elsewhere + "; pop empty queue=others"},
		"successor lost, and another item popped without answer": {"lost: ",
			parent + "push 2; ack 1 " + next + "; pop lost"},
		"successor of a lost lease": {"refused, but done",
			parent + "later 1m; lease 2 2 9; ack 1 stale " + next + "; ack 2; pop 1 at=8"},
	}
}

// The checker knows which items are too large, and that there is a next one where a batch was cut
// off.
func TestCheckerOfSizes(t *testing.T) { testHistories(t, sizedScripts()) }

func sizedScripts() map[string]pageTest {
	const (
		two   = "push size=100; push 1 size=10000; "
		held  = two + "hold 0 max_bytes=500 cut=true; "
		wrong = "not linearizable"
	)
	return map[string]pageTest{
		"the largest is too large": {"",
			two + "pop too-large kind=pop.max max_bytes=500; take 0 1"},
		"a lease finds no room": {"", two + "hold 0 cut=true; later 1h; take 0 1"},
		"a pull finds it too large": {"",
			two + "fetch too-large kind=lease.max spread=true max_bytes=500; take 0 1"},
		"a pull breaks off":         {"", "push; hold 0 spread=true cut=true; later 1h; take 0"},
		"+NXT, and it is too large": {"", held + "next 1 too-large max_bytes=500; take 1"},

		"it is not": {wrong,
			two + "pop too-large max_bytes=5000; take 0 1"},
		"nothing is": {wrong, two + "take 0 1 max_bytes=20000 cut=true"},
		"a large one is skipped": {wrong,
			two + "pop kind=pop.max max_bytes=500; take 1"},
		"there is no next": {wrong,
			two + "take 0; hold 1 cut=true; later 1h; take 1"},
		"+NXT says empty, and it is not": {wrong,
			held + "next 1 empty max_bytes=500; take 1"},
		"an item with another number of bytes": {"of 7 bytes", two + "pop size=7; take 1"},
	}
}

// The checker knows which items are passed over because their groups are at a limit.
func TestCheckerOfLimits(t *testing.T) { testHistories(t, limitedScripts()) }

func limitedScripts() map[string]pageTest {
	const (
		three = "limit 1; push group=x; push 1 group=x; push 2 group=y; "
		first = three + "lease 1 1 9; "
		ended = "; later 1h; take 0 1 2"
		wrong = "not linearizable"
	)
	return map[string]pageTest{
		"passed over at the back": {
			"",
			"limit 1; push group=x; push 1 group=x; lease 1 1 9 of=1 kind=lease.max; pop empty " +
				"kind=pop.max; ack 1 of=1; pop",
		},
		"not by a peek":       {"", first + "peek 1; len 2; ack 1; take 1 2"},
		"not without a group": {"", "limit 1; push; push 1; lease 1 1 9; pop 1; ack 1"},
		"its place is free":   {"", first + "next 1 got=1; later 1h; take 1 2"},
		"the lease is over": {"",
			three + "lease 1 1 2; later 9s; lease 2 2 9; pop 2; ack 2; pop 1"},
		"given back": {"",
			first + "nak 1 delay=9s; lease 1 1 9 of=1; ack 1 of=1; pop 2; later 9s; pop"},
		"extended late": {"",
			three + "lease 1 1 2; later 9s; extend 1 wait=20s; pop 2; ack 1; pop 1"},
		"a lease without answer": {"",
			three + "fetch lost; pop 2; later 1m; lease 2 2 9; ack 2; pop 1"},
		"a pop without answer": {"", first + "pop lost; pop empty; ack 1; pop 1"},
		"a pop without answer, or two": {"",
			first + "pop lost; pop lost; pop empty; ack 1; pop empty"},

		"popped beyond the limit": {wrong, first + "pop 1; ack 1; pop 2"},
		"empty, though free":      {wrong, first + "pop 2; ack 1; pop empty; pop 1"},
		"its own place not free":  {wrong, first + "next 1 got=2; later 1h; take 1 2"},
		"place not freed by a nak": {wrong,
			first + "nak 1 delay=9s; lease 1 1 9 of=2; later 1h; take 0 1 2"},
		"over, and still counted": {wrong, three + "lease 1 1 2; later 9s; pop 2; take 0 1"},
	}
}

// A history can be written and read again, and a page shows its faults.
func TestHistoryFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.json")
	must(t, historyOf(t, "push; len 2; pop").Write(path))
	h, err := proof.Read(path)
	must(t, err)

	if h.Check(checkTimeout) == nil {
		t.Error("what is wrong is not found")
	}
	if pages, err := h.Visualize(path, checkTimeout); err != nil || len(pages) != 1 {
		t.Errorf("pages: %q, %v", pages, err)
	}
}

// A lease that nobody answered may hold an item when the history ends, but not for good.
func TestCheckLeft(t *testing.T) {
	h := historyOf(t, "push; fetch lost")
	must(t, h.Check(checkTimeout))
	item := books.Item{Value: "0", ID: h.Operations[0].ID}
	must(t, h.CheckLeft(map[string][]books.Item{"jobs": {item}}))

	for _, left := range [][]books.Item{nil, {item, item}, {{Value: "1", ID: item.ID}}} {
		if h.CheckLeft(map[string][]books.Item{"jobs": left}) == nil {
			t.Errorf("left %+v, and nothing is wrong", left)
		}
	}
}

// The history in the file that -history names passes the check.
func TestFile(t *testing.T) {
	if flags.history == "" {
		t.Skip("checks a file: -history <path>")
	}

	h, err := proof.Read(flags.history)
	must(t, err)
	must(t, h.Check(checkTimeout))
}
