package proof_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/testenv/proof"
)

// leaseSome pushes two items and leases both for some seconds, with fence 1.
func (p *page) leaseSome(seconds int64) {
	p.batch(proof.Done, 1, 2)
	op := proof.Operation{Kind: proof.LeaseMin, Batch: 2}
	for _, value := range []string{"0", "1"} {
		until := p.now + (1+seconds)*1e9
		op.Items = append(op.Items, proof.Item{Value: value, ID: p.ids[value], Fence: 1, Deliveries: 1, Until: until})
	}
	p.enter(op)
}

// leaseAgain leases one of them again.
func (p *page) leaseAgain(value string) {
	until := p.now + 2e9
	p.enter(proof.Operation{Kind: proof.LeaseMin, Items: []proof.Item{{Value: value, ID: p.ids[value], Fence: 2, Deliveries: 2, Until: until}}})
}

// ackBoth acknowledges both in one request.
func (p *page) ackBoth(kind proof.Kind, outcome proof.Outcome, lost ...int) {
	p.enter(proof.Operation{
		Kind: kind, Value: "0", ID: p.ids["0"], Fence: 1, Outcome: outcome, Lost: lost,
		Also: []proof.Item{{Value: "1", ID: p.ids["1"], Fence: 1}},
	})
}

// ack acknowledges one of them.
func (p *page) ack(value string, fence int64, outcome proof.Outcome) {
	p.enter(proof.Operation{Kind: proof.Ack, Value: value, ID: p.ids[value], Fence: fence, Outcome: outcome})
}

// Acknowledgements of several leases count for all of them or for none.
func TestBooksOfSeveralAcks(t *testing.T) {
	const done, lost, stale = proof.Done, proof.Lost, proof.Stale
	for name, test := range map[string]bookTest{
		"acknowledged":                {"", func(p *page) { p.leaseSome(9); p.ackBoth(proof.Ack, done) }},
		"acknowledged, nothing there": {"", func(p *page) { p.leaseSome(9); p.ackBoth(proof.NextMin, proof.Empty) }},
		"one is lost": {"", func(p *page) {
			p.leaseSome(0)
			p.leaseAgain("1")
			p.ackBoth(proof.Ack, stale, 1)
			p.ack("0", 1, done)
			p.ack("1", 2, done)
		}},
		"without answer": {"", func(p *page) { p.leaseSome(9); p.ackBoth(proof.Ack, lost) }},
		"without answer or effect": {"", func(p *page) {
			p.leaseSome(0)
			p.ackBoth(proof.Ack, lost)
			p.left("jobs", "0")
			p.left("jobs", "1")
		}},
		"without answer, and each again": {"", func(p *page) {
			p.leaseSome(9)
			p.ackBoth(proof.Ack, lost)
			p.ack("0", 1, stale)
			p.ack("1", 1, stale)
		}},
		"without answer or effect, then one alone": {"", func(p *page) {
			p.leaseSome(0)
			p.ackBoth(proof.Ack, lost)
			p.ack("0", 1, lost)
			p.left("jobs", "1")
		}},
		"twice without answer": {"", func(p *page) { p.leaseSome(9); p.ackBoth(proof.Ack, lost); p.ackBoth(proof.Ack, stale, 0, 1) }},
		"next without end": {"", func(p *page) {
			p.leaseSome(9)
			p.enter(proof.Operation{
				Kind: proof.NextMin, Value: "0", ID: p.ids["0"], Fence: 1, Batch: 2, Outcome: lost,
				Items: []proof.Item{{Value: p.another(), ID: p.ids["2"], Fence: 1, Deliveries: 1, Until: p.now}},
				Also:  []proof.Item{{Value: "1", ID: p.ids["1"], Fence: 1}},
			})
			p.ack("2", 1, done)
		}},
		"lost, and removed": {"", func(p *page) {
			p.push(done)
			p.lease(1, 1, 9)
			p.use(proof.Ack, 1, stale)
			p.enter(proof.Operation{Kind: proof.Remove, Value: "0", ID: "id"})
		}},

		"half without answer": {"lost: 1", func(p *page) { p.leaseSome(0); p.ackBoth(proof.Ack, lost); p.left("jobs", "0") }},
		"half without answer, twice": {"lost: 1", func(p *page) {
			p.leaseSome(0)
			p.ackBoth(proof.Ack, lost)
			p.ackBoth(proof.Ack, proof.Unknown)
			p.left("jobs", "0")
		}},
		"half without answer, delivered again": {"lost: 0", func(p *page) {
			p.leaseSome(0)
			p.ackBoth(proof.Ack, lost)
			p.leaseAgain("1")
			p.ack("1", 2, done)
		}},
		"refused, and acknowledged": {"lost: 0", func(p *page) {
			p.leaseSome(0)
			p.leaseAgain("1")
			p.ackBoth(proof.Ack, stale, 1)
			p.ack("1", 2, done)
		}},
		"the lost one counts": {"a lost token counts", func(p *page) { p.leaseSome(0); p.leaseAgain("1"); p.ackBoth(proof.Ack, done) }},
		"the lost one is not named": {"not said to be lost", func(p *page) {
			p.leaseSome(0)
			p.leaseAgain("1")
			p.ackBoth(proof.Ack, stale, 0)
			p.left("jobs", "0")
			p.left("jobs", "1")
		}},
		"none is named": {"none of the leases", func(p *page) { p.leaseSome(0); p.ackBoth(proof.Ack, stale); p.left("jobs", "0"); p.left("jobs", "1") }},
		"another one is named": {"said to be lost, and not", func(p *page) {
			p.leaseSome(9)
			p.ackBoth(proof.Ack, stale, 0)
			p.ack("0", 1, done)
			p.ack("1", 1, done)
		}},
		"named, and left": {"said to be lost, and not", func(p *page) {
			p.leaseSome(9)
			p.ackBoth(proof.Ack, stale, 0)
			p.left("jobs", "0")
			p.left("jobs", "1")
		}},
		"half counts, the other is refused": {"lost: 0", func(p *page) {
			p.leaseSome(9)
			p.ackBoth(proof.Ack, proof.Refused)
			p.left("jobs", "1")
		}},
		"leased though refused": {"of no known lease", func(p *page) {
			p.leaseSome(0)
			p.leaseAgain("1")
			p.ackBoth(proof.NextMin, stale, 1)
			p.enter(proof.Operation{Kind: proof.LeaseMin, Items: []proof.Item{{Value: "0", ID: p.ids["0"], Fence: 3, Deliveries: 3, Until: p.now}}})
			p.left("jobs", "0")
			p.left("jobs", "1")
		}},
	} {
		t.Run(name, test.run)
	}
}

// another pushes item 2 and returns its value.
func (p *page) another() string {
	p.books.New()
	p.ids["2"] = "third"
	p.enter(proof.Operation{Kind: proof.Push, Value: "2", ID: "third"})
	return "2"
}
