package sources_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/sources"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// configure sets the source of jobs in the store itself.
func (f *fixture) configure(source string) {
	f.Helper()
	set := func(s *fdbpq.Settings) { s.Source = source }
	f.apply(fdbpq.Op{Kind: fdbpq.OpConfigure, Configure: set})
	_, err := fdbpqtest.CheckInvariants(context.Background(), f.DB, "pq", "q")
	f.must(err)
}

// changeState changes the state of the source in the store itself.
func (f *fixture) changeState(to func(s *settings.SourceState)) {
	f.Helper()
	change := func(old []byte, _ time.Time) ([]byte, error) {
		s, err := settings.ParseSourceState(old)
		to(&s)
		return s.JSON(), err
	}
	f.apply(fdbpq.Op{Kind: fdbpq.OpSetSource, Change: change})
}

// apply runs an operation on jobs, without a bridge.
func (f *fixture) apply(op fdbpq.Op) {
	f.Helper()
	op.Queue = f.queue("jobs")
	results, err := kv.Transact(f.Context(), f.DB, func(tx kv.Transaction) ([]fdbpq.Result, error) {
		return fdbpq.Apply(tx, []fdbpq.Op{op}, time.Now())
	})
	f.must(err)
	f.must(results[0].Err)
}

// A stream that was restored from a backup, and has got other messages since then, stops the
// source, which stays stopped when another member of it changes. Nothing more is drawn.
func TestRestored(t *testing.T) {
	for retention, want := range map[jetstream.RetentionPolicy]string{
		jetstream.LimitsPolicy:    "message 20 of stream S is not the one",
		jetstream.WorkQueuePolicy: "message 11 of stream S is not the one",
	} {
		subtest(t, retention.String(), func(t *testing.T) {
			f := newFixture(t, testenv.Options{})
			f.startDrawing(retention, 10)

			dir, backup := "", t.TempDir()
			f.NATS.Change(func(o *server.Options) { dir = o.StoreDir })
			f.NATS.Stop()
			f.must(os.CopyFS(backup, os.DirFS(dir)))

			// The backup has ten messages. Ten more are drawn, and lost when it is restored.
			f.NATS.Start()
			f.publishOnceBack(11, 20)
			f.waitUntilDrawn(20)
			f.must(f.Bridge.Stop())

			f.NATS.Stop()
			f.must(os.RemoveAll(dir))
			f.must(os.CopyFS(dir, os.DirFS(backup)))

			f.NATS.Start()
			f.publishOnceBack(11, 30)

			f.StartBridge().WaitReady()
			f.waitUntilStopped(want)
			f.must(f.setSource(source("S", `"on_bad":"stop"`))) // which is no new start

			f.waitUntilStopped(want)
			f.wantItems(1, 20)
		})
	}
}

// startDrawing creates stream S, draws from it, and waits until n messages are drawn.
func (f *fixture) startDrawing(retention jetstream.RetentionPolicy, n int) jetstream.Stream {
	f.Helper()
	s := f.createStream("S", retention)
	f.must(f.setSource(source("S")))

	f.waitForConsumers("S", 1)
	f.publish("S", 1, n)
	f.waitUntilDrawn(uint64(n))

	return s
}

// publishOnceBack publishes once the server is back.
func (f *fixture) publishOnceBack(from, to int) {
	f.Helper()
	testenv.Eventually(f.TB, func() error {
		_, err := f.js.Stream(f.Context(), "S")
		return err
	})

	f.publish("S", from, to)
}

// If the consumer of a stream with interest is removed, the source stops, because messages may be
// gone. Set with a start, it draws what the stream still gets.
func TestConsumerRemoved(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{})
		f.startDrawing(jetstream.InterestPolicy, 10)

		f.must(f.js.DeleteConsumer(t.Context(), "S", f.waitUntilDrawn(10).Consumer))
		f.waitUntilStopped("was removed", `"start":11`)
		f.publish("S", 11, 20) // for nobody
		f.must(f.setSource(source("S", `"start":11`)))

		f.eventually(func(s *settings.SourceState) bool {
			return s.Consumer != "" && s.Stopped == ""
		})

		f.waitForConsumers("S", 1)
		f.publish("S", 21, 30)
		f.waitUntilDrawn(30)

		f.wantList("items", f.pop("jobs", value)[:4], "3", "6", "9", "21")
	})
}

// When a source is changed or removed while no bridge runs, the next bridge removes its former
// consumer, even if the new stream is missing.
func TestFormerConsumers(t *testing.T) {
	for _, retention := range retentions {
		subtest(t, retention.String(), func(t *testing.T) {
			f := newFixture(t, testenv.Options{})
			f.createStream("T", retention)
			f.startDrawing(retention, 5)

			for _, next := range []string{source("T"), source("S"), source("MISSING"), ""} {
				f.must(f.Bridge.Stop())
				f.configure(next)
				f.Bridge = f.StartBridge()
				f.Bridge.WaitReady()
				want := map[string]int{}

				if s, err := settings.ParseSource(next); err == nil {
					want[s.Stream] = 1
				}

				f.waitForConsumers("S", want["S"])
				f.waitForConsumers("T", want["T"])

				if next != "" {
					f.eventually(func(s *settings.SourceState) bool { return len(s.Former) == 0 })
				}
			}
			testenv.Eventually(t, func() error {
				if s, err := f.state(); !errors.Is(err, errNoSource) {
					return fmt.Errorf("there is still a state: %s, %v", s.JSON(), err)
				}
				return nil
			})
		})
	}
}

// The source of a copied store knows the consumer of the original, which it replaces with one of
// its own. No message is drawn twice or lost.
func TestCopiedStore(t *testing.T) {
	for _, retention := range retentions {
		subtest(t, retention.String(), func(t *testing.T) {
			f := newFixture(t, testenv.Options{})
			f.startDrawing(retention, 5)
			f.must(f.Bridge.Stop())

			// The copy has another consumer in its place.
			name, now := f.waitUntilDrawn(5).Consumer, ""
			base, part, _ := strings.Cut(name, "=")
			other := "pq_OTHER123_pq_jobs" + strings.Repeat("="+part, min(len(part), 1))
			info, err := f.js.Consumer(t.Context(), "S", name)
			f.must(err)

			config := info.CachedInfo().Config
			config.Name, config.Durable = other, other
			f.must(f.js.DeleteConsumer(t.Context(), "S", name))

			_, err = f.js.CreateConsumer(t.Context(), "S", config)
			f.must(err)
			f.changeState(func(s *settings.SourceState) { s.Consumer = other })
			f.publish("S", 6, 9)

			f.StartBridge().WaitReady()
			f.waitUntilDrawn(9)
			f.wantItems(1, 9)
			testenv.Eventually(t, func() error {
				s, err := f.js.Stream(t.Context(), "S")
				if err != nil {
					return err
				}

				var names []string
				for name := range s.ConsumerNames(t.Context()).Name() {
					names = append(names, name)
				}

				if now = strings.Join(names, " "); len(names) != 1 ||
					!strings.HasPrefix(now, base) {
					return fmt.Errorf("consumers: %s, want one %s", now, base)
				}

				return nil
			})
		})
	}
}

// A source draws what is there of a stream that keeps only the last message of each subject, and
// counts the others as removed. From a mirror it draws what the origin has left.
func TestFewerMessages(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{})
		_, err := f.js.CreateStream(t.Context(),
			jetstream.StreamConfig{Name: "S", Subjects: []string{"S.>"}, MaxMsgsPerSubject: 1})
		f.must(err)
		f.must(f.setSource(source("S")))

		f.publish("S", 1, 3)
		f.waitUntilDrawn(3)
		f.must(f.Bridge.Stop())

		// Of nine messages with three subjects, three are left.
		f.publish("S", 4, 12)
		f.Bridge = f.StartBridge()
		if s := f.waitUntilDrawn(12); s.Removed != 6 || s.Drawn != 6 {
			t.Errorf("drawn: %s", s.JSON())
		}

		origin := f.createStream("T", jetstream.LimitsPolicy)
		f.publish("T", 1, 60)
		f.must(origin.Purge(t.Context(), jetstream.WithPurgeSequence(50)))

		_, err = f.js.CreateStream(t.Context(),
			jetstream.StreamConfig{Name: "M", Mirror: &jetstream.StreamSource{Name: "T"}})
		f.must(err)
		f.must(f.setSource(source("M")))

		if s := f.waitUntilDrawn(60); s.Drawn != 11 { // 50 to 60
			t.Errorf("drawn: %s", s.JSON())
		}
	})
}

// A work queue is drawn once, however often its source is removed and set again, or gets another
// filter.
func TestWorkQueueSetAgain(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{})
		f.createStream("S", jetstream.WorkQueuePolicy)
		n := harness.Times(1000, 4000)
		published := make(chan struct{})

		go func() {
			defer close(published)
			for i := 0; i < n; i += 100 {
				f.publish("S", i+1, i+100)
			}
		}()

		for again := true; again; {
			for _, next := range []string{
				source("S"), "null", source("S"), source("S", `"filter":"S.*"`),
				source("S", `"filter":"S.1"`),
			} {
				f.must(f.setSource(next))
			}
			select {
			case <-published:
				again = false
			default:
			}
		}
		f.must(f.setSource(source("S")))
		f.waitUntilAcknowledged("S")

		f.wantItems(1, n)
	})
}

// Messages that former sources have drawn from a work queue, each with its own filter, are not
// drawn again.
func TestFormerOfWorkQueue(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{})
		f.createStream("S", jetstream.WorkQueuePolicy)
		f.publish("S", 1, 30)
		f.must(f.Bridge.Stop())

		f.configure(source("S"))
		f.changeState(func(s *settings.SourceState) {
			for _, filter := range []string{"S.0", "S.1"} {
				s.Former = append(s.Former, settings.SourceConsumer{
					Stream:   "S",
					Filter:   filter,
					Name:     "former",
					Sequence: 24,
					Newest:   time.Now(),
				})
			}
		})

		f.StartBridge().WaitReady()
		s := f.eventually(func(s *settings.SourceState) bool { return s.Drawn > 0 && s.Lag == 0 })

		// Those after 24 are left of both filters, and all of S.2, which nobody has drawn.
		if s.Drawn != 14 {
			t.Errorf("drawn: %s", s.JSON())
		}
		f.wantList("items", f.pop("jobs", value), "27", "30", "25", "28", "2", "5", "8", "11", "14",
			"17", "20", "23", "26", "29")
	})
}

// A message that is too large as an item only because of its group is a dead letter.
func TestGroupTooLarge(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		const maxPayload, room = 8192, 80 // room for a short group, and not for a long one
		f := newFixture(t, testenv.Options{NATS: func(o *server.Options) {
			o.MaxPayload = maxPayload
		}})
		f.createStream("S", jetstream.LimitsPolicy)

		for _, group := range []string{"g", strings.Repeat("g", 100)} {
			_, err := f.js.Publish(t.Context(), "S."+group, make([]byte, maxPayload-room))
			f.must(err)
		}
		f.must(f.setSource(`{"stream":"S","group":{"token":2}}`))
		if s := f.waitUntilDrawn(2); s.Drawn != 1 || s.Dead != 1 {
			t.Errorf("drawn: %s", s.JSON())
		}
	})
}

// A message with a header beyond ASCII, which needs a frame, is too large if it leaves no room for
// one.
func TestNoRoomForAFrame(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		const maxPayload, room = 8192, 120 // room for the headers, and not for a frame besides
		f := newFixture(t, testenv.Options{NATS: func(o *server.Options) {
			o.MaxPayload = maxPayload
		}})
		f.createStream("S", jetstream.LimitsPolicy)

		for _, kind := range []string{"groesse", "größe"} {
			_, err := f.js.PublishMsg(t.Context(), &nats.Msg{
				Subject: "S.a", Header: nats.Header{"Type": {kind}},
				Data: make([]byte, maxPayload-room),
			})
			f.must(err)
		}
		f.must(f.setSource(`{"stream":"S"}`))
		if s := f.waitUntilDrawn(2); s.Drawn != 1 || s.Dead != 1 {
			t.Errorf("drawn: %s", s.JSON())
		}
	})
}

// Configured sources are set when the bridge starts, and wrong ones are refused. They go on where
// they were when a bridge starts again, even if somebody has set another start meanwhile.
func TestConfigured(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		grammar, err := subjects.New("pq", "q")
		if err != nil {
			t.Fatal(err)
		}

		for bad, want := range map[string]string{
			`[]`:                           `want a JSON object, such as {"pq.orders"`,
			`{"pq.a":{},"pq.a":{}}`:        `"pq.a" given twice`,
			`{"pq.a":{"Stream":"S"}}`:      `pq.a: unknown member "Stream"`,
			`{"orders":{"stream":"S"}}`:    `"orders": want a queue`,
			`{"pq.a.push":{"stream":"S"}}`: `"pq.a.push": want a queue`,
			`{"pq.orders":{}}`:             `pq.orders: stream: ""`,
			`{"q.mail":{"stream":"S","priority":{"token":3}}}`: "q.mail: priority: a FIFO queue",
		} {
			_, err := sources.Parse(grammar, []byte(bad))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", bad, err, want)
			}
		}

		text := `{"pq.jobs":` + source("S", `"start":3`) + `,"q.mail":{"stream":"S"}}`
		configured, err := sources.Parse(grammar, []byte(text))
		if err != nil {
			t.Fatal(err)
		}

		f := newFixture(t,
			testenv.Options{Bridge: func(o *bridge.Options) { o.Sources = configured }})
		f.eventually(func(s *settings.SourceState) bool {
			return strings.Contains(s.Waiting, "not found")
		})

		f.createStream("S", jetstream.LimitsPolicy)
		f.publish("S", 1, 6)
		f.waitUntilDrawn(6)

		f.wantItems(3, 6)

		for i, by := range []string{source("S", `"start":5`), source("S", `"on_bad":"stop"`)} {
			f.must(f.setSource(by))
			f.waitUntilDrawn(uint64(6 + i))
			f.must(f.Bridge.Stop())

			f.pop("jobs", value)
			f.publish("S", 7+i, 7+i)
			f.Bridge = f.StartBridge()
			f.Bridge.WaitReady()
			f.waitUntilDrawn(uint64(7 + i))

			f.wantList("after a start", f.pop("jobs", value), fmt.Sprint(7+i))
		}
	})
}

// A source says that its server has no JetStream, rather than that nobody answers.
func TestNoJetStream(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{NATS: func(o *server.Options) { o.JetStream = false }})
		f.must(f.setSource(source("S")))
		f.eventually(func(s *settings.SourceState) bool {
			return strings.Contains(s.Waiting, "stream S: this NATS server has no JetStream")
		})
	})
}

// A source that lacks a right says so.
func TestMissingRights(t *testing.T) {
	for missing, want := range map[string]string{
		"$JS.API.STREAM.INFO.S":         "no answer from JetStream",
		"$JS.API.CONSUMER.MSG.NEXT.S.>": "JetStream delivers nothing",
		"$JS.ACK.S.>":                   "does not take acknowledgements",
	} {
		subtest(t, missing, func(t *testing.T) {
			denied := &server.SubjectPermission{Deny: []string{missing}}
			f := newFixture(t, withRights(server.Permissions{Publish: denied}))
			f.createStream("S", jetstream.WorkQueuePolicy)
			f.publish("S", 1, 10)
			f.must(f.setSource(source("S")))

			f.eventually(func(s *settings.SourceState) bool {
				return strings.Contains(s.Waiting, want)
			})
		})
	}
}
