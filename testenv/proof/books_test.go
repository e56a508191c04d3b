package proof_test

import (
	"cmp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/testenv/proof"
)

// page writes operations into books, one after the other, a second each unless said
// otherwise.
type page struct {
	*testing.T
	books *proof.Books
	now   int64

	ids  map[string]string // by value; "id" unless said otherwise
	keys map[string]string // unique keys by value
}

func (p *page) enter(op proof.Operation) {
	op.Queue = cmp.Or(op.Queue, "jobs")
	if op.Outcome == "" {
		op.Outcome = proof.Done
	}
	intent := p.books.Begin(&op)
	p.now += int64(time.Second)
	op.Call, op.Return = p.now-1000, p.now
	p.books.End(&op, intent)
}

func (p *page) push(outcome proof.Outcome) (value string) {
	op := proof.Operation{Kind: proof.Push, Value: "0", ID: "id", Outcome: outcome}
	p.books.New()
	p.enter(op)
	return op.Value
}

// lease leases item 0 for some seconds.
func (p *page) lease(fence, deliveries, seconds int64) { p.leaseAs("id", fence, deliveries, seconds) }

func (p *page) leaseAs(id string, fence, deliveries, seconds int64) {
	until := p.now + (1+seconds)*int64(time.Second)
	p.ids["0"] = id
	p.enter(proof.Operation{Kind: proof.LeaseMin, Items: []proof.Item{{Value: "0", ID: id, Fence: fence, Deliveries: deliveries, Until: until}}})
}

func (p *page) use(kind proof.Kind, fence int64, outcome proof.Outcome) {
	p.enter(proof.Operation{Kind: kind, Value: "0", ID: "id", Fence: fence, Outcome: outcome})
}

func (p *page) snooze(fence int64) {
	p.enter(proof.Operation{Kind: proof.Nak, Value: "0", ID: "id", Fence: fence, Snooze: true})
}

func (p *page) pop(outcome proof.Outcome) {
	op := proof.Operation{Kind: proof.PopMin, Outcome: outcome}
	if outcome == proof.Done {
		op.Value, op.ID = "0", "id"
	}
	p.enter(op)
}

// dead leases item 0 from the dead-letter queue.
func (p *page) dead(fence int64) {
	until := p.now + int64(time.Second)
	p.enter(proof.Operation{Queue: "jobs-dead", Kind: proof.LeaseMin, Items: []proof.Item{{Value: "0", ID: "letter", Fence: fence, Deliveries: fence, Until: until}}})
}

// left finds an item in the end, with the id that it has in that queue.
func (p *page) left(queue, value string) {
	id := cmp.Or(p.ids[value], "id")
	if strings.HasSuffix(queue, "-dead") {
		id = "letter"
	}
	p.books.Left(queue, value, id)
}

// popDead pops item 0 from the dead-letter queue.
func (p *page) popDead() {
	p.enter(proof.Operation{Queue: "jobs-dead", Kind: proof.PopMin, Value: "0", ID: "letter"})
}

// batch pushes items 0 and up, with these counts in their ids.
func (p *page) batch(outcome proof.Outcome, counts ...int64) {
	op := proof.Operation{Kind: proof.Push, Batch: len(counts), Outcome: outcome}
	for i, count := range counts {
		p.books.New()
		id := fdbpq.ID{Count: count}.String()
		p.ids[strconv.Itoa(i)] = id
		op.Items = append(op.Items, proof.Item{Value: strconv.Itoa(i), ID: id})
	}
	p.enter(op)
}

// wait makes a request that is to wait, for two items, and gets n after a microsecond.
func (p *page) wait(outcome proof.Outcome, expires time.Duration, n int) {
	op := proof.Operation{Kind: proof.PopMin, Batch: 2, Expires: int64(expires), Outcome: outcome}
	for i := range n {
		op.Items = append(op.Items, proof.Item{Value: strconv.Itoa(i), ID: fdbpq.ID{Count: int64(i) + 1}.String()})
	}
	p.enter(op)
}

// bookTest is operations, and what is wrong with them.
type bookTest struct {
	want  string // in the error; none if all is well
	write func(p *page)
}

func (test *bookTest) run(t *testing.T) {
	p := &page{T: t, books: proof.NewBooks(0), ids: map[string]string{}, keys: map[string]string{}}
	test.write(p)
	_, err := p.books.Close(p.now / 1e6)
	if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
		t.Errorf("found: %v; want %q", err, test.want)
	}
}

// Books accept what may happen and find each kind of fault.
func TestBooks(t *testing.T) {
	const done, lost, stale = proof.Done, proof.Lost, proof.Stale
	for name, test := range map[string]bookTest{
		"popped":                      {"", func(p *page) { p.push(done); p.pop(done) }},
		"acknowledged":                {"", func(p *page) { p.push(done); p.lease(1, 1, 9); p.use(proof.Ack, 1, done) }},
		"lease over, delivered again": {"", func(p *page) { p.push(done); p.lease(1, 1, 0); p.lease(2, 2, 9); p.use(proof.Ack, 2, done) }},
		"given back": {"", func(p *page) {
			p.push(done)
			p.lease(1, 1, 9)
			p.use(proof.Nak, 1, done)
			p.lease(3, 2, 9)
			p.use(proof.Ack, 3, done)
		}},
		"snoozed": {"", func(p *page) {
			p.push(done)
			p.lease(1, 1, 9)
			p.snooze(1)
			p.lease(3, 1, 9)
			p.pop(lost)
			p.use(proof.Ack, 3, done)
		}},
		"old token": {"", func(p *page) {
			p.push(done)
			p.lease(1, 1, 0)
			p.lease(2, 2, 0)
			p.use(proof.Ack, 1, stale)
			p.pop(done)
		}},
		"late acknowledgement":          {"", func(p *page) { p.push(done); p.lease(1, 1, 0); p.pop(proof.Empty); p.use(proof.Ack, 1, done) }},
		"push without answer":           {"", func(p *page) { p.push(lost); p.pop(done) }},
		"push without answer or effect": {"", func(p *page) { p.push(lost); p.pop(proof.Empty) }},
		"acknowledged without answer":   {"", func(p *page) { p.push(done); p.lease(1, 1, 9); p.use(proof.Ack, 1, lost) }},
		"given back without answer": {"", func(p *page) {
			p.push(done)
			p.lease(1, 1, 9)
			p.use(proof.Nak, 1, lost)
			p.lease(3, 2, 9)
			p.use(proof.Ack, 3, done)
		}},
		"leased without answer": {"", func(p *page) {
			p.push(done)
			p.enter(proof.Operation{Kind: proof.LeaseMin, Outcome: lost})
			p.lease(2, 2, 0)
			p.pop(done)
		}},
		"frames without receiver": {"", func(p *page) {
			p.push(done)
			p.enter(proof.Operation{Kind: proof.LeaseMin, Outcome: proof.Gone, Batch: 2})
			p.lease(5, 1, 0)
			p.pop(done)
		}},
		"popped without answer": {"", func(p *page) { p.push(done); p.pop(lost) }},
		"stored again":          {"", func(p *page) { p.push(done); p.pop(lost); p.leaseAs("other", 1, 1, 0); p.left("jobs", "0") }},
		"left":                  {"", func(p *page) { p.push(done); p.lease(1, 1, 0); p.left("jobs", "0") }},
		"waited":                {"", func(p *page) { p.batch(done, 1, 2); p.wait(done, time.Minute, 2) }},
		"waited until the end":  {"", func(p *page) { p.wait(proof.Empty, time.Microsecond, 0) }},
		"no receiver, back":     {"", func(p *page) { p.push(done); p.pop(proof.Gone); p.pop(done) }},
		"lease without receiver": {"", func(p *page) {
			p.push(done)
			p.enter(proof.Operation{Kind: proof.LeaseMin, Outcome: proof.Gone})
			p.lease(2, 2, 0)
			p.pop(done)
		}},
		"batch":                {"", func(p *page) { p.batch(done, 1, 2); p.left("jobs", "0"); p.left("jobs", "1") }},
		"batch without answer": {"", func(p *page) { p.batch(lost, 1, 2); p.left("jobs", "0"); p.left("jobs", "1") }},
		"batch without effect": {"", func(p *page) { p.batch(lost, 1, 2) }},
		"given up":             {"", func(p *page) { p.push(done); p.lease(1, 1, 9); p.use(proof.Term, 1, done); p.dead(1); p.popDead() }},
		"given up and left": {"", func(p *page) {
			p.push(done)
			p.lease(1, 1, 9)
			p.use(proof.Term, 1, done)
			p.left("jobs-dead", "0")
		}},
		"given up without answer": {"", func(p *page) { p.push(done); p.lease(1, 1, 9); p.use(proof.Term, 1, lost); p.popDead() }},
		"not given up after all": {"", func(p *page) {
			p.push(done)
			p.lease(1, 1, 0)
			p.use(proof.Term, 1, lost)
			p.lease(2, 2, 0)
			p.pop(done)
		}},
		"given up, too late": {"", func(p *page) {
			p.push(done)
			p.lease(1, 1, 0)
			p.lease(2, 2, 0)
			p.use(proof.Term, 1, stale)
			p.pop(done)
		}},
		"given up, answered later": {"", func(p *page) {
			p.push(done)
			p.lease(1, 1, 9)
			op := proof.Operation{Queue: "jobs", Kind: proof.Term, Value: "0", ID: "id", Fence: 1, Outcome: done, Call: p.now}
			intent := p.books.Begin(&op)
			p.popDead()
			op.Return = p.now
			p.books.End(&op, intent)
		}},

		"told too early":      {"gave up early", func(p *page) { p.wait(proof.Empty, time.Minute, 0) }},
		"too few too early":   {"gave up early", func(p *page) { p.batch(done, 1); p.wait(done, time.Minute, 1) }},
		"waiter served twice": {"lost: 1", func(p *page) { p.batch(done, 1, 2); p.wait(done, 0, 1) }},
		"no receiver, lost":   {"lost: 0", func(p *page) { p.push(done); p.pop(proof.Gone) }},
		"restored twice":      {"settled twice", func(p *page) { p.push(done); p.pop(proof.Gone); p.pop(done); p.pop(done) }},
		"restored elsewhere": {"stored again", func(p *page) {
			p.push(done)
			p.pop(proof.Gone)
			p.leaseAs("other", 1, 1, 0)
			p.left("jobs", "0")
		}},
		"half a batch":              {"lost: 1", func(p *page) { p.batch(lost, 1, 2); p.left("jobs", "0") }},
		"refused batch, half of it": {"refused, but left", func(p *page) { p.batch(proof.Refused, 1, 2); p.left("jobs", "1") }},
		"batch in the wrong order":  {"wrong order", func(p *page) { p.batch(done, 2, 1); p.left("jobs", "0"); p.left("jobs", "1") }},
		"dead letter lost":          {"lost: 0", func(p *page) { p.push(done); p.lease(1, 1, 9); p.use(proof.Term, 1, done) }},
		"dead letter in both": {"given up and left", func(p *page) {
			p.push(done)
			p.lease(1, 1, 9)
			p.use(proof.Term, 1, done)
			p.left("jobs", "0")
			p.popDead()
		}},
		"dead letter in both, popped": {"came back", func(p *page) { p.push(done); p.lease(1, 1, 9); p.use(proof.Term, 1, done); p.pop(done) }},
		"dead letter in both, leased": {"came back", func(p *page) {
			p.push(done)
			p.lease(1, 1, 0)
			p.use(proof.Term, 1, done)
			p.lease(2, 2, 0)
			p.popDead()
		}},
		"dead and then popped": {"in two queues", func(p *page) { p.push(done); p.lease(1, 1, 0); p.use(proof.Term, 1, lost); p.dead(1); p.pop(done) }},
		"dead and then leased": {"in two queues", func(p *page) {
			p.push(done)
			p.lease(1, 1, 0)
			p.use(proof.Term, 1, done)
			p.dead(1)
			p.lease(2, 2, 0)
			p.popDead()
		}},
		"dead and then acknowledged": {"a lost token counts", func(p *page) {
			p.push(done)
			p.lease(1, 1, 0)
			p.use(proof.Term, 1, lost)
			p.dead(1)
			p.use(proof.Ack, 1, done)
		}},
		"given up twice": {"a lost token counts", func(p *page) {
			p.push(done)
			p.lease(1, 1, 9)
			p.use(proof.Term, 1, done)
			p.use(proof.Term, 1, done)
			p.popDead()
		}},
		"two dead letters":   {"settled twice", func(p *page) { p.push(done); p.lease(1, 1, 9); p.use(proof.Term, 1, done); p.popDead(); p.popDead() }},
		"given up by nobody": {"given up by nobody", func(p *page) { p.push(done); p.lease(1, 1, 0); p.popDead() }},
		"acknowledged, and dead": {"settled twice", func(p *page) {
			p.push(done)
			p.lease(1, 1, 9)
			p.use(proof.Term, 1, lost)
			p.use(proof.Ack, 1, done)
			p.popDead()
		}},
		"dead letter with a history": {"of no known lease", func(p *page) { p.push(done); p.lease(1, 1, 0); p.use(proof.Term, 1, done); p.dead(3); p.popDead() }},

		"lost":                {"lost: 0", func(p *page) { p.push(done) }},
		"lease not put back":  {"lost: 0", func(p *page) { p.push(done); p.lease(1, 1, 0); p.use(proof.Ack, 1, stale) }},
		"invented":            {"invented", func(p *page) { p.pop(done) }},
		"refused, but done":   {"refused, but done", func(p *page) { p.push(proof.Refused); p.pop(done) }},
		"refused, but left":   {"refused, but left", func(p *page) { p.push(proof.Refused); p.left("jobs", "0") }},
		"popped twice":        {"settled twice", func(p *page) { p.push(done); p.pop(done); p.pop(done) }},
		"acknowledged twice":  {"a lost token counts", func(p *page) { p.push(done); p.lease(1, 1, 9); p.use(proof.Ack, 1, done); p.use(proof.Ack, 1, done) }},
		"popped and left":     {"settled and left", func(p *page) { p.push(done); p.pop(done); p.left("jobs", "0") }},
		"ack removes nothing": {"came back", func(p *page) { p.push(done); p.lease(1, 1, 0); p.use(proof.Ack, 1, done); p.lease(2, 2, 0) }},
		"popped and leased":   {"came back", func(p *page) { p.push(done); p.pop(done); p.lease(1, 1, 0) }},
		"fencing off":         {"a lost token counts", func(p *page) { p.push(done); p.lease(1, 1, 0); p.lease(2, 2, 9); p.use(proof.Ack, 1, done) }},
		"token after nak": {"a lost token counts", func(p *page) {
			p.push(done)
			p.lease(1, 1, 9)
			p.use(proof.Nak, 1, done)
			p.use(proof.Extend, 1, done)
			p.pop(done)
		}},
		"two holders":         {"held by two", func(p *page) { p.push(done); p.lease(1, 1, 9); p.lease(2, 2, 9); p.use(proof.Ack, 2, done) }},
		"popped while leased": {"held by two", func(p *page) { p.push(done); p.lease(1, 1, 9); p.pop(done) }},
		"delay forgotten": {"too early", func(p *page) {
			p.push(done)
			p.lease(1, 1, 9)
			p.enter(proof.Operation{Kind: proof.Nak, Value: "0", ID: "id", Fence: 1, Delay: int64(time.Minute)})
			p.pop(done)
		}},
		"one fence for two": {"with one fence", func(p *page) { p.push(done); p.lease(1, 1, 0); p.lease(1, 1, 0); p.pop(done) }},
		"given back twice": {"with one fence", func(p *page) {
			p.push(done)
			p.lease(1, 1, 9)
			p.use(proof.Nak, 1, done)
			p.lease(3, 2, 9)
			p.lease(3, 2, 9)
			p.pop(done)
		}},
		"old place wrong":     {"stored again", func(p *page) { p.push(done); p.lease(1, 1, 0); p.leaseAs("other", 2, 2, 0); p.left("jobs", "0") }},
		"history lost":        {"2 leases", func(p *page) { p.push(done); p.lease(1, 1, 0); p.lease(2, 1, 0); p.pop(done) }},
		"snooze counts":       {"1 snoozes", func(p *page) { p.push(done); p.lease(1, 1, 0); p.snooze(1); p.lease(3, 2, 0); p.pop(done) }},
		"a fence of no lease": {"of no known lease", func(p *page) { p.push(done); p.lease(1, 1, 0); p.lease(3, 3, 0); p.pop(done) }},
		"a negative one ignored": {"item 0: fence 2", func(p *page) {
			p.push(done)
			p.lease(1, 1, 0)
			p.use(proof.Nak, 1, done)
			p.lease(2, 2, 0)
			p.pop(done)
		}},
	} {
		t.Run(name, test.run)
	}
}
