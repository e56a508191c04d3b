package fdbpq_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// A clock that is set back does not stop a queue or group with a rate: it serves one item at once,
// and further ones at the rate.
func TestRatesWhenTheClockIsSetBack(t *testing.T) {
	for name, configure := range map[string]func(s *fdbpq.Settings){
		"rate":           func(s *fdbpq.Settings) { s.Rate = "3/90s" },
		"rate_per_group": func(s *fdbpq.Settings) { s.RatePerGroup = "3/90s" },
	} {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(f *fixture) {
				clock, q := f.setClock(), f.queue("q")
				f.configure(q, configure)
				f.pushGroup(q, "a", 20, 1)
				f.popGroups(q, 3)

				f.wantNoToken(q, clock.now().Add(30*time.Second))

				clock.advance(-time.Hour)
				f.popGroups(q, 1)
				f.wantNoToken(q, clock.now().Add(30*time.Second))
				f.check()

				clock.advance(30 * time.Second)
				f.popGroups(q, 1)
				f.wantNoToken(q, clock.now().Add(30*time.Second))

				clock.advance(10 * time.Minute)
				f.popGroups(q, 3)
				f.wantNoToken(q, clock.now().Add(30*time.Second))
				f.check()
			})
		})
	}
}

// Bridges whose clocks differ by less than a second keep to a rate together.
func TestRatesWithClocksThatDiffer(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock, q := f.setClock(), f.queue("q")
		f.configure(q, func(s *fdbpq.Settings) { s.Rate = "1/30s" })
		f.pushGroup(q, "a", 20, 1)
		f.popGroups(q, 1)

		clock.advance(-999 * time.Millisecond)
		f.wantNoToken(q, clock.now().Add(30*time.Second+999*time.Millisecond))
	})
}

// wantNoToken checks that a pop is refused because of a rate, and that the next may have an item at
// the given time.
func (f *fixture) wantNoToken(q fdbpq.Target, next time.Time) {
	f.Helper()
	r := f.apply(fdbpq.Op{Kind: fdbpq.OpPop, Queue: q, Waits: true})[0]

	if !errors.Is(r.Err, fdbpq.ErrRate) && !errors.Is(r.Err, fdbpq.ErrGroupLimits) ||
		!r.NextDue.Equal(next) {
		f.Errorf("a pop: %v, next due %v, want a rate that is used up until %v",
			r.Err, r.NextDue, next)
	}
}

// A consumer whose record says how long it is kept gets one more term when it expires, and goes
// after that unless it is used.
func TestConsumersGetALastTerm(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, now := f.queue("jobs"), time.Now().UTC().Truncate(time.Second)
		record := func(expires time.Time, kept time.Duration) string {
			return fmt.Sprintf(`{"expires":%q,"kept":%d,"x":"y"}`,
				expires.Format(time.RFC3339), kept)
		}

		first := record(now.Add(time.Minute), time.Hour)
		last := fmt.Sprintf(`{"expires":%q,"x":"y"}`, now.Add(11*time.Hour).Format(time.RFC3339))

		looks := map[string]fdbpq.Op{
			"its records": {Kind: fdbpq.OpConsumers, Queue: q},
			"a sweep":     {Kind: fdbpq.OpSweep, Queue: q},
			"a change":    opSetConsumer(q, "other", "x"),
		}

		for what, look := range looks {
			wantErrors(f.T, f.applyAt(now, opSetConsumer(q, "c", first)))

			f.applyAt(now.Add(10*time.Hour), look)
			all := f.read(fdbpq.Op{Kind: fdbpq.OpConsumers, Queue: q})[0].Records
			wantEqual(f.T, "after "+what, string(all[0].Value), last)
			f.check()

			wantErrors(f.T,
				f.applyAt(now.Add(11*time.Hour), fdbpq.Op{Kind: fdbpq.OpSweep, Queue: q}))

			f.setConsumer(q, "other", "")
			all = f.read(fdbpq.Op{Kind: fdbpq.OpConsumers, Queue: q})[0].Records
			wantEqual(f.T, "consumers after the last term", len(all), 0)
			f.check()
		}
	})
}
