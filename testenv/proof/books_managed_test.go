package proof_test

import (
	"cmp"
	"strconv"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv/proof"
)

// edit removes or moves item 0, which has an id, and gets another one if it is moved.
func (p *page) edit(kind proof.Kind, outcome proof.Outcome) {
	op := proof.Operation{Kind: kind, Value: "0", ID: cmp.Or(p.ids["0"], "id"), Outcome: outcome}
	if kind == proof.Move {
		op.Moved = "moved"
	}
	p.enter(op)
}

// sweep purges or redrives, and n items are told.
func (p *page) sweep(kind proof.Kind, outcome proof.Outcome, n int64) {
	p.enter(proof.Operation{Queue: "jobs-dead", Kind: kind, Outcome: outcome, Len: n, Batch: 100})
}

// pushAs pushes an item with a number, and a delay and so on.
func (p *page) pushAs(n int, op proof.Operation) {
	p.books.New()
	op.Kind, op.Value = proof.Push, strconv.Itoa(n)
	if op.ID == "" {
		op.ID = "id"
	}
	p.ids[op.Value], p.keys[op.Value] = op.ID, op.Unique
	p.enter(op)
}

// popItem pops an item with a number, with the id that it has.
func (p *page) popItem(n int) {
	value := strconv.Itoa(n)
	p.enter(proof.Operation{Kind: proof.PopMin, Value: value, ID: cmp.Or(p.ids[value], "id"), Unique: p.keys[value]})
}

// redriven gives item 0 up, sends it back if it is asked for, and pops it there.
func (p *page) redriven(outcome proof.Outcome, n int64) {
	p.push(proof.Done)
	p.lease(1, 1, 0)
	p.use(proof.Term, 1, proof.Done)
	p.dead(1)
	p.sweep(proof.Redrive, outcome, n)
	p.enter(proof.Operation{Kind: proof.PopMin, Value: "0", ID: "back"})
}

// Books know pushes with a delay, an expiry or a unique key, and requests that manage items and queues.
func TestBooksOfManagedItems(t *testing.T) {
	const done, lost, stale = proof.Done, proof.Lost, proof.Stale
	delayed, expiring := proof.Operation{Delay: int64(time.Minute)}, proof.Operation{TTL: int64(time.Minute)}
	purged := proof.Operation{Queue: "jobs-purged"}
	first, second := proof.Operation{Unique: "k", ID: "first"}, proof.Operation{Unique: "k", ID: "second"}
	duplicate := proof.Operation{Unique: "k", ID: "first", Outcome: proof.Duplicate}
	minutes := int64(2 * time.Minute)
	for name, test := range map[string]bookTest{
		"delayed":            {"", func(p *page) { p.pushAs(0, delayed); p.now += minutes; p.popItem(0) }},
		"expired":            {"", func(p *page) { p.pushAs(0, expiring); p.now += minutes }},
		"did not expire":     {"", func(p *page) { p.pushAs(0, expiring); p.popItem(0) }},
		"removed":            {"", func(p *page) { p.push(done); p.edit(proof.Remove, done) }},
		"removed by nobody":  {"", func(p *page) { p.push(done); p.popItem(0); p.edit(proof.Remove, proof.Empty) }},
		"removed unanswered": {"", func(p *page) { p.push(done); p.edit(proof.Remove, lost) }},
		"removed while leased": {"", func(p *page) {
			p.push(done)
			p.lease(1, 1, 9)
			p.edit(proof.Remove, done)
			p.use(proof.Ack, 1, stale)
		}},
		"moved": {"", func(p *page) {
			p.push(done)
			p.edit(proof.Move, done)
			p.leaseAs("moved", 1, 1, 0)
			p.left("jobs", "0")
		}},
		"moved unanswered": {"", func(p *page) {
			p.push(done)
			p.edit(proof.Move, lost)
			p.leaseAs("moved", 1, 1, 0)
			p.left("jobs", "0")
		}},
		"not moved":           {"", func(p *page) { p.push(done); p.edit(proof.Move, stale); p.popItem(0) }},
		"purged":              {"", func(p *page) { p.pushAs(0, purged); p.sweep(proof.Purge, done, 1) }},
		"purged unanswered":   {"", func(p *page) { p.pushAs(0, purged); p.sweep(proof.Purge, lost, 0) }},
		"redriven":            {"", func(p *page) { p.redriven(done, 1) }},
		"redriven unanswered": {"", func(p *page) { p.redriven(lost, 0) }},
		"key used again":      {"", func(p *page) { p.pushAs(0, first); p.popItem(0); p.pushAs(1, second); p.popItem(1) }},
		"duplicate":           {"", func(p *page) { p.pushAs(0, first); p.pushAs(1, duplicate); p.popItem(0) }},
		"popped unanswered with a key": {"", func(p *page) {
			p.pushAs(0, first)
			p.pop(lost)
			p.pushAs(1, second)
			p.popItem(0)
			p.popItem(1)
		}},

		"expired, and perhaps leased": {"", func(p *page) {
			p.pushAs(0, proof.Operation{Unique: "k", ID: "first", TTL: int64(time.Minute)})
			p.enter(proof.Operation{Kind: proof.LeaseMin, Outcome: lost})
			p.now += minutes
			p.pushAs(1, duplicate)
		}},

		"delayed, served at once": {"too early", func(p *page) { p.pushAs(0, delayed); p.popItem(0) }},
		"delayed, leased at once": {"too early", func(p *page) { p.pushAs(0, delayed); p.lease(1, 1, 0); p.left("jobs", "0") }},
		"delayed, lost":           {"lost: 0", func(p *page) { p.pushAs(0, delayed); p.now += minutes }},
		"expired and served":      {"expired, and served", func(p *page) { p.pushAs(0, expiring); p.now += minutes; p.popItem(0) }},
		"expired early":           {"lost: 0", func(p *page) { p.pushAs(0, expiring) }},
		"dead letter expired": {"lost: 0", func(p *page) {
			p.pushAs(0, expiring)
			p.lease(1, 1, 9)
			p.use(proof.Term, 1, done)
			p.now += minutes
		}},
		"removed and there":  {"settled twice", func(p *page) { p.push(done); p.edit(proof.Remove, done); p.popItem(0) }},
		"removed and leased": {"came back", func(p *page) { p.push(done); p.edit(proof.Remove, done); p.lease(1, 1, 0) }},
		"removed twice":      {"gone, and found", func(p *page) { p.push(done); p.edit(proof.Remove, done); p.edit(proof.Remove, done) }},
		"removed, token": {"a lost token counts", func(p *page) {
			p.push(done)
			p.lease(1, 1, 9)
			p.edit(proof.Remove, done)
			p.use(proof.Extend, 1, done)
		}},
		"remove is in doubt, but not that": {"lost: 0", func(p *page) { p.push(done); p.edit(proof.Remove, proof.Empty) }},
		"moved, old place":                 {"stored again", func(p *page) { p.push(done); p.edit(proof.Move, done); p.popItem(0) }},
		"moved and both": {"settled twice", func(p *page) {
			p.push(done)
			p.edit(proof.Move, lost)
			p.popItem(0)
			p.leaseAs("moved", 1, 1, 0)
			p.popItem(0)
		}},
		"moved and lost":       {"lost: 0", func(p *page) { p.push(done); p.edit(proof.Move, done) }},
		"moved, popped before": {"gone, and found", func(p *page) { p.push(done); p.popItem(0); p.edit(proof.Move, done) }},
		"moved, old token": {"a lost token counts", func(p *page) {
			p.push(done)
			p.lease(1, 1, 0)
			p.edit(proof.Move, done)
			p.use(proof.Ack, 1, done)
		}},
		"purged too many": {"only 0 can be gone", func(p *page) { p.pushAs(0, purged); p.popItem(0); p.sweep(proof.Purge, done, 1) }},
		"purged more":     {"lost: 2", func(p *page) { p.pushAs(0, purged); p.pushAs(1, purged); p.sweep(proof.Purge, done, 1) }},
		"redriven twice": {"settled twice", func(p *page) {
			p.redriven(done, 1)
			p.enter(proof.Operation{Kind: proof.PopMin, Value: "0", ID: "back"})
		}},
		"redriven and left":  {"in two queues", func(p *page) { p.redriven(done, 1); p.popDead() }},
		"redriven by nobody": {"only 0 were redriven", func(p *page) { p.redriven(proof.Done, 0) }},
		"two with one key":   {"two items with one unique key", func(p *page) { p.pushAs(0, first); p.pushAs(1, second); p.popItem(0); p.popItem(1) }},
		"a key lost":         {"without its key", func(p *page) { p.pushAs(0, first); p.keys["0"] = ""; p.popItem(0) }},
		"a key of a dead letter": {"has a unique key", func(p *page) {
			p.push(done)
			p.lease(1, 1, 9)
			p.use(proof.Term, 1, done)
			p.enter(proof.Operation{Queue: "jobs-dead", Kind: proof.PopMin, Value: "0", ID: "letter", Unique: "k"})
		}},
		"a key that is not freed": {"not there", func(p *page) { p.pushAs(0, first); p.popItem(0); p.pushAs(1, duplicate) }},
		"a key that is not freed by expiry": {"not there", func(p *page) {
			p.pushAs(0, proof.Operation{Unique: "k", ID: "first", TTL: int64(time.Minute)})
			p.now += minutes
			p.pushAs(1, duplicate)
		}},
		"duplicate, but pushed": {"refused, but done", func(p *page) { p.pushAs(0, first); p.pushAs(1, duplicate); p.popItem(0); p.popItem(1) }},
	} {
		t.Run(name, test.run)
	}
}
