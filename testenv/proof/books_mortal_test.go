package proof_test

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv/proof"
)

// TestMortalBooks keeps the accounts of items that have a limited number of deliveries.
func TestMortalBooks(t *testing.T) {
	const done, lost = proof.Done, proof.Lost
	push := func(p *page) { p.pushAs(0, proof.Operation{Queue: "d-jobs"}) }
	lease := func(p *page, fence, deliveries int64) { p.lease(fence, deliveries, 0); p.now += int64(time.Second) }
	thrice := func(p *page) {
		push(p)
		for n := range int64(proof.MaxDeliver) {
			lease(p, n+1, n+1)
		}
	}
	for name, test := range map[string]bookTest{
		"all leases run out": {"", func(p *page) { thrice(p); p.dead(1); p.popDead() }},
		"given back three times": {"", func(p *page) {
			push(p)
			for n := range int64(proof.MaxDeliver) {
				p.lease(2*n+1, n+1, 9)
				p.use(proof.Nak, 2*n+1, done)
			}
			p.left("jobs-dead", "0")
		}},
		"two replies lost": {"", func(p *page) {
			push(p)
			lease(p, 1, 1)
			p.enter(proof.Operation{Queue: "d-jobs", Kind: proof.LeaseMin, Outcome: lost})
			p.enter(proof.Operation{Queue: "fifo-d-jobs", Kind: proof.LeaseMin, Outcome: lost})
			p.left("jobs-dead", "0")
		}},
		"done after all": {"", func(p *page) { thrice(p); p.use(proof.Ack, proof.MaxDeliver, done) }},

		"dead after two deliveries": {"died too early", func(p *page) {
			push(p)
			lease(p, 1, 1)
			lease(p, 2, 2)
			p.enter(proof.Operation{Kind: proof.LeaseMin, Outcome: lost}) // of another queue
			p.left("jobs-dead", "0")
		}},
		"dead after a snooze": {"of no known lease", func(p *page) {
			push(p)
			lease(p, 1, 1)
			lease(p, 2, 2)
			p.lease(3, 3, 9)
			p.snooze(3)
			p.dead(1)
			p.popDead()
		}},
		"dead during the last lease": {"dead too early", func(p *page) {
			push(p)
			lease(p, 1, 1)
			lease(p, 2, 2)
			p.lease(3, 3, 9)
			p.dead(1)
			p.popDead()
		}},
		"one delivery more": {"delivered too often", func(p *page) { thrice(p); lease(p, proof.MaxDeliver+1, proof.MaxDeliver+1); p.popItem(0) }},
		"given back, and there": {"came back", func(p *page) {
			push(p)
			lease(p, 1, 1)
			lease(p, 2, 2)
			p.lease(3, 3, 9)
			p.use(proof.Nak, 3, done)
			p.popItem(0)
		}},
		"gone":                        {"lost: 0", thrice},
		"dead in a queue without end": {"given up by nobody", func(p *page) { p.push(done); p.dead(1); p.popDead() }},
		"back before the backoff": {"held by two", func(p *page) {
			push(p)
			lease(p, 1, 1)
			p.lease(2, 2, 0)
			p.now += int64(time.Millisecond - time.Second)
			p.lease(3, 3, 0)
			p.popItem(0)
		}},
	} {
		t.Run(name, test.run)
	}
}
