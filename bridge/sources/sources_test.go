package sources_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/testenv"
)

func (f *fixture) now() time.Time { return time.Now() }

var retentions = []jetstream.RetentionPolicy{jetstream.LimitsPolicy, jetstream.WorkQueuePolicy, jetstream.InterestPolicy}

// Each message becomes one item, whatever becomes of commits, and of the bridge and the server.
func TestExactlyOnce(t *testing.T) {
	for _, retention := range retentions {
		t.Run(retention.String(), func(t *testing.T) {
			faulty := map[faultkv.Fault]float64{faultkv.UnknownLost: .1, faultkv.UnknownMade: .1, faultkv.Conflict: .1, faultkv.Outage: .01}
			f := newFixture(t, testenv.Options{Wrap: func(db kv.Database) kv.Database {
				return faultkv.New(db, faultkv.Options{Seed: 1, Rates: faulty})
			}})
			f.stream("S", retention)
			testenv.Eventually(t, func() error { return f.set(source("S")) })
			f.consumes("S")
			f.publish("S", 1, 2000)

			// Another bridge goes on where the first has stopped, and the server comes back.
			f.drawn(100)
			other := f.StartBridge()
			f.must(f.Bridge.Stop())
			other.WaitReady()
			f.publish("S", 2001, 3000)
			f.drawn(2500)
			f.NATS.Restart()
			testenv.Eventually(t, f.Conn.Flush)
			f.publish("S", 3001, 4000)
			f.drawn(4000)
			f.wantItems(1, 4000)

			if retention != jetstream.LimitsPolicy {
				testenv.Eventually(t, func() error {
					s, err := f.js.Stream(t.Context(), "S")
					if err == nil && s.CachedInfo().State.Msgs > 0 {
						err = fmt.Errorf("%d messages are not acknowledged", s.CachedInfo().State.Msgs)
					}
					return err
				})
			}
		})
	}
}
