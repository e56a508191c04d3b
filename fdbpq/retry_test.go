package fdbpq_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// A negative acknowledgement with a retry delay holds an item back for the backoff of its queue. If
// the queue has none, it holds the item back for that delay, twice as long after each further
// delivery that counts, up to a minute or the delay itself.
func TestRetryDelay(t *testing.T) {
	for name, test := range map[string]struct {
		backoff []time.Duration
		delay   time.Duration
		want    []time.Duration // after each delivery
	}{
		"growing": {
			delay: 10 * time.Second,
			want: []time.Duration{
				10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute,
			},
		},
		"longer than a minute": {delay: time.Hour, want: []time.Duration{time.Hour, time.Hour}},
		"none":                 {delay: 0, want: []time.Duration{0, 0}},
		"with a backoff": {
			backoff: []time.Duration{2 * time.Second, time.Hour},
			delay:   time.Second,
			want:    []time.Duration{2 * time.Second, time.Hour, time.Hour},
		},
		"with a backoff of nothing": {
			backoff: []time.Duration{0},
			delay:   time.Second,
			want:    []time.Duration{0, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(f *fixture) {
				clock, q := f.setClock(), f.queue("jobs")
				f.configure(q, func(s *fdbpq.Settings) { s.Backoff = test.backoff })
				f.push(q, 5, "a")

				var got []time.Duration
				for range test.want {
					f.done(fdbpq.Op{
						Kind:      fdbpq.OpNak,
						Queue:     q,
						Token:     f.leaseSome(q, 1, time.Minute)[0],
						Uncounted: true, // which the next delay must not count
					})

					due := f.done(fdbpq.Op{
						Kind:       fdbpq.OpNak,
						Queue:      q,
						Token:      f.leaseSome(q, 1, time.Minute)[0],
						Delay:      fdbpq.Backoff,
						RetryDelay: test.delay,
					}).NextDue
					if due.IsZero() {
						due = clock.now()
					}

					got = append(got, due.Sub(clock.now()))
					clock.advance(due.Sub(clock.now()))
				}
				if !slices.Equal(got, test.want) {
					f.Errorf("held back for %v, want %v", got, test.want)
				}
			})
		})
	}
}

// A retry delay does not keep an item from its dead-letter queue after the last delivery.
func TestRetryDelayOfTheLastDelivery(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		f.configure(q, func(s *fdbpq.Settings) { s.MaxDeliver = 1 })
		f.push(q, 5, "a")

		f.done(fdbpq.Op{
			Kind:       fdbpq.OpNak,
			Queue:      q,
			Token:      f.leaseSome(q, 1, time.Minute)[0],
			Delay:      fdbpq.Backoff,
			RetryDelay: time.Hour,
			Reason:     "no",
		})

		f.wantDead(f.queue("jobs-dead"), message("a"), fdbpq.DeadLetter{
			Queue:      "jobs",
			Reason:     fdbpq.ReasonMaxDeliver,
			Error:      "no",
			Deliveries: 1,
		})
	})
}
