package sources_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/sources"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

var retentions = []jetstream.RetentionPolicy{
	jetstream.LimitsPolicy, jetstream.WorkQueuePolicy, jetstream.InterestPolicy,
}

// Each message becomes one item, although commits fail or have unknown outcomes, another bridge
// takes over, and the server restarts. Streams that wait for acknowledgements get them all.
func TestExactlyOnce(t *testing.T) {
	for _, retention := range retentions {
		subtest(t, retention.String(), func(t *testing.T) {
			rates := map[faultkv.Fault]float64{
				faultkv.UnknownLost: .1,
				faultkv.UnknownMade: .1,
				faultkv.Conflict:    .1,
				faultkv.Outage:      .01,
			}

			var store *faultkv.DB
			f := newFixture(t, testenv.Options{Wrap: func(db kv.Database) kv.Database {
				store = faultkv.New(db, faultkv.Options{Seed: 1, Rates: rates})
				return store
			}})

			f.createStream("S", retention)
			testenv.Eventually(t, func() error { return f.setSource(source("S")) })

			f.waitForConsumers("S", 1)
			n := harness.Times(200, 1000) // a quarter of the messages

			publish := func(from, to int) {
				for ; from <= to; from += 10 {
					f.publish("S", from, from+9)
					time.Sleep(time.Millisecond) // so that it takes many transactions
				}
			}

			publish(1, 2*n)

			// Another bridge goes on where the first has stopped, and the server comes back.
			f.waitUntilDrawn(100)
			other := f.StartBridge()
			f.must(f.Bridge.Stop())

			other.WaitReady()
			publish(2*n+1, 3*n)
			f.waitUntilDrawn(uint64(2*n + n/2))
			f.NATS.Restart()
			store.Next(faultkv.UnknownLost, faultkv.UnknownMade, faultkv.Conflict) // one of each

			testenv.Eventually(t, f.Conn.Flush)

			publish(3*n+1, 4*n)
			f.waitUntilDrawn(uint64(4 * n))
			f.wantItems(1, 4*n)

			for _, fault := range []faultkv.Fault{
				faultkv.UnknownLost, faultkv.UnknownMade, faultkv.Conflict,
			} {
				if store.Counts()[fault] == 0 {
					t.Errorf("no commit had the fault %v", fault)
				}
			}

			if retention != jetstream.LimitsPolicy {
				f.waitUntilAcknowledged("S")
			}
		})
	}
}

// A source begins at its start, and draws only what its filter allows. A new start or filter begins
// there anew. A start that is not in the stream stops the source, and says what is.
func TestStart(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{})
		s := f.createStream("S", jetstream.LimitsPolicy)
		f.publish("S", 1, 9)

		f.must(f.setSource(source("S", `"start":4`)))
		f.waitUntilDrawn(9)
		f.wantItems(4, 9)

		f.must(f.setSource(source("S", `"start":"new"`)))
		f.eventually(func(s *settings.SourceState) bool {
			return strings.Contains(string(s.Source), "new") && !s.Created.IsZero()
		})

		f.publish("S", 10, 12)
		f.waitUntilDrawn(12)
		f.wantItems(10, 12)

		f.must(f.setSource(source("S", `"filter":"S.1"`))) // numbers with 1 modulo 3
		f.waitUntilDrawn(10)
		f.wantList("filtered", f.pop("jobs", value), "1", "4", "7", "10")

		f.must(f.setSource(source("S", `"start":14`)))
		f.waitUntilStopped("start is 14", "is 12")

		// From an explicit start on, no message may be gone. Of others it counts how many were.
		f.must(s.Purge(t.Context(), jetstream.WithPurgeSequence(3)))
		f.must(s.DeleteMsg(t.Context(), 6))
		f.must(f.setSource(source("S", `"start":1`)))

		f.waitUntilStopped("messages 1 to 2", `"start":3`)
		f.must(f.setSource(source("S", `"start":3`)))
		if s := f.waitUntilDrawn(12); s.Removed != 1 || s.Drawn != 9 { // 3 to 12 without 6
			t.Errorf("drawn: %s", s.JSON())
		}
		f.must(f.setSource("null"))

		f.waitForConsumers("S", 0)
	})
}

// Priority and group come from headers, from tokens of the subject or from the source. Other
// headers stay with the item, but message ids, unique keys and a bad Pq-Keep do not.
func TestFields(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{})
		f.createStream("S", jetstream.LimitsPolicy)

		for _, subject := range []string{"S.7.a", "S.-3.b"} {
			m := nats.NewMsg(subject)
			m.Header = nats.Header{
				"Tenant":      {"t-" + subject},
				"Other":       {"x"},
				"Nats-Msg-Id": {subject},
				"Pq-Unique":   {"u"},
				"Pq-Keep":     {map[string]string{"S.7.a": "1h", "S.-3.b": "soon"}[subject]},
			}

			m.Data = []byte("x")
			_, err := f.js.PublishMsg(t.Context(), m)
			f.must(err)
		}

		text := func(item *fdbpq.Item) string {
			return fmt.Sprint(item.ID.Priority, " ", item.Message.Headers, item.Message.MsgID,
				item.Message.Unique, item.Message.Keep)
		}

		for fields, want := range map[string][]string{
			`"priority":{"token":2},"group":{"token":3}`: {
				"-3 map[Other:[x] Pq-Group:[b] Pq-Source:[S 2] Tenant:[t-S.-3.b]]0s",
				"7 map[Other:[x] Pq-Group:[a] Pq-Source:[S 1] Tenant:[t-S.7.a]]1h0m0s",
			},
			`"priority":5,"group":{"header":"Tenant"},"start":1`: {
				"5 map[Other:[x] Pq-Group:[t-S.7.a] Pq-Source:[S 1] Tenant:[t-S.7.a]]1h0m0s",
				"5 map[Other:[x] Pq-Group:[t-S.-3.b] Pq-Source:[S 2] Tenant:[t-S.-3.b]]0s",
			},
		} {
			f.must(f.setSource("null"))
			f.must(f.setSource(`{"stream":"S",` + fields + `}`))
			f.waitUntilDrawn(2)

			// Groups that take turns come in either order.
			slices.Sort(want)
			f.wantList(fields, slices.Sorted(slices.Values(f.pop("jobs", text))), want...)
		}
	})
}

// A full queue holds its source back. The rest is drawn, in order, as soon as there is room.
func TestFullQueue(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		const messages, maxItems = 1500, 700
		f := newFixture(t, testenv.Options{})
		f.createStream("S", jetstream.WorkQueuePolicy)
		f.Request("pq.jobs.config", nil, fmt.Appendf(nil, `{"max_items":%d}`, maxItems))
		f.publish("S", 1, messages)
		f.must(f.setSource(`{"stream":"S"}`))

		var got []string
		for _, full := range []uint64{maxItems, 2 * maxItems} {
			s := f.eventually(func(s *settings.SourceState) bool {
				return s.Waiting != "" && s.Sequence == full
			})
			if s.Lag != messages-full {
				t.Errorf("held back: %s", s.JSON())
			}

			got = append(got, f.take(maxItems, "jobs", value)...)
		}
		f.eventually(func(s *settings.SourceState) bool {
			return s.Waiting == "" && s.Sequence == messages
		})

		got = append(got, f.pop("jobs", value)...)
		for i, text := range got {
			if text != strconv.Itoa(i+1) {
				t.Fatalf("item %d is %s", i+1, text)
			}
		}
		if len(got) != messages {
			t.Errorf("%d items, want %d", len(got), messages)
		}
	})
}

// A stream that was purged or created again while nobody drew stops the source, with a text that
// says what to do. A source that is set so goes on.
func TestOtherStream(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{})
		s := f.createStream("S", jetstream.LimitsPolicy)
		f.publish("S", 1, 5)
		f.must(f.setSource(source("S")))

		f.waitUntilDrawn(5)
		f.wantItems(1, 5)

		// Purged while no bridge runs.
		f.must(f.Bridge.Stop())
		f.publish("S", 6, 20)
		f.must(s.Purge(t.Context(), jetstream.WithPurgeSequence(15)))

		f.StartBridge().WaitReady()
		f.waitUntilStopped("messages 6 to 14", `"start":15`)
		f.must(f.setSource(source("S", `"start":15`)))

		f.waitUntilDrawn(20)
		f.wantItems(15, 20)

		// Created again, with fewer messages and with more.
		f.must(f.js.DeleteStream(t.Context(), "S"))
		f.eventually(func(s *settings.SourceState) bool {
			return strings.Contains(s.Waiting, "not found")
		})

		f.createStream("S", jetstream.LimitsPolicy)
		f.publish("S", 1, 40)
		f.waitUntilStopped("created again", "remove the source")
		f.must(f.setSource("null"))
		f.must(f.setSource(source("S", `"start":15`)))

		f.waitUntilDrawn(40)
		f.wantItems(15, 40)
	})
}

// Three drawers that think they own a queue, a bridge and two more, draw each message once,
// although they remove each other's consumers.
func TestSeveralDrawers(t *testing.T) {
	for _, retention := range retentions {
		subtest(t, retention.String(), func(t *testing.T) {
			f := newFixture(t, testenv.Options{})
			f.createStream("S", retention)
			f.must(f.setSource(source("S")))

			s := f.eventually(func(s *settings.SourceState) bool { return s.Consumer != "" })
			store := strings.Split(s.Consumer, "_")[1]

			d := dispatch.New(dispatch.Options{
				DB:       f.DB,
				Keyspace: f.Keyspace,
				Limits: dispatch.Limits{
					Lanes:           1,
					MaxBatch:        1000,
					MaxBatchBytes:   1 << 20,
					MaxPending:      1000,
					MaxPendingBytes: 1 << 30,
					RequestTimeout:  testenv.Patience,
				},
				Warn:      func(string, ...any) {},
				BatchDone: func(int) {},
			})

			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { d.Run(ctx) })
			defer running.Wait()
			defer cancel()
			defer d.Close()
			jobs := fdbpq.QueueName{Name: "jobs"}
			others := make([]*sources.Sources, 2)

			for i := range others {
				others[i] = sources.New(sources.Config{
					Dispatcher: d,
					Conn:       func() *nats.Conn { return f.Conn },
					Warn:       func(string, ...any) {},
					Owns:       func(subjects.Kind, string) bool { return true },
					Configured: map[fdbpq.QueueName]string{jobs: source("S")},
				})
				running.Go(others[i].Start(ctx, store))
			}

			rounds := harness.Times(10, 40)
			for i := range rounds {
				f.publish("S", 100*i+1, 100*i+100)
				for _, other := range others {
					other.Tell(jobs, true)
				}
			}

			f.waitUntilDrawn(uint64(100 * rounds))
			f.wantItems(1, 100*rounds)
		})
	}
}

// A source that is set again gets a consumer with another name, so that no other drawer goes on
// with its deliveries. The old consumer is removed, and each message is drawn once.
func TestConsumerOfASession(t *testing.T) {
	for _, retention := range retentions {
		subtest(t, retention.String(), func(t *testing.T) {
			f := newFixture(t, testenv.Options{})
			f.startDrawing(retention, 5)
			s, err := f.state()
			f.must(err)
			f.must(f.setSource(source("S")))

			f.eventually(func(now *settings.SourceState) bool { return now.Consumer != s.Consumer })

			f.publish("S", 6, 10)
			f.waitUntilDrawn(10)
			f.wantItems(1, 10)

			f.waitForConsumers("S", 1)
		})
	}
}

// turns is a store whose transactions that may write begin only while turn has an element.
type turns struct {
	kv.Database
	turn chan struct{}
}

func (d turns) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	<-d.turn
	d.turn <- struct{}{}
	return d.Database.Begin(ctx, o)
}

// inTurns returns options of systems whose bridges are patient, and the channel of their turns:
// whoever takes its element holds up all writes.
func inTurns() (testenv.Options, chan struct{}) {
	turn := make(chan struct{}, 1)
	turn <- struct{}{}

	return testenv.Options{
		Wrap: func(db kv.Database) kv.Database { return turns{db, turn} },
		Bridge: func(o *bridge.Options) {
			o.RequestTimeout = testenv.Patience
			o.ShutdownTimeout = testenv.Patience
		},
	}, turn
}

// setSlowly sets the sources of several queues. Before they are in the store, it calls meanwhile,
// and the bridges find no sources.
func (f *fixture) setSlowly(turn chan struct{}, meanwhile func()) {
	f.Helper()
	const queues = 16
	f.createStream("S", jetstream.LimitsPolicy)
	<-turn
	inbox := f.Conn.NewInbox()
	answers, err := f.Conn.SubscribeSync(inbox)
	f.must(err)

	for i := range queues {
		config := []byte(`{"source":` + source("S") + `}`)
		f.must(f.Conn.PublishRequest(fmt.Sprintf("pq.q-%d.config", i), inbox, config))
	}

	<-time.After(time.Second)
	meanwhile()
	<-time.After(10 * time.Second)
	turn <- struct{}{}

	for range queues {
		m, err := answers.NextMsg(testenv.Patience)
		f.must(err)

		if err := subjects.ErrorFromHeaders(m.Header); err != nil {
			f.Fatal(err)
		}
	}

	f.waitForConsumers("S", queues)
}

// If a queue goes to another bridge while its source is being set, the other bridge draws from it,
// although it looked for sources before this one was there.
func TestOwnerChangesMeanwhile(t *testing.T) {
	subtest(t, "another bridge comes", func(t *testing.T) {
		options, turn := inTurns()
		f := newFixture(t, options)
		f.setSlowly(turn,
			func() { f.StartBridge(func(o *bridge.Options) { o.DB = f.DB }).WaitReady() })
	})
	subtest(t, "the bridge leaves", func(t *testing.T) {
		options, turn := inTurns()
		f := newFixture(t, options)
		f.StartBridge().WaitReady()
		<-time.After(10 * time.Second)
		f.setSlowly(turn, f.Bridge.BeginStop)
		<-f.Bridge.Done()
	})
}

// A bridge that did not know how far another one has drawn goes on behind that, and draws nothing
// twice.
func TestDrawsBehindAnother(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{})
		f.startDrawing(jetstream.LimitsPolicy, 10)

		// As if another bridge had drawn messages 11 to 20.
		f.changeState(func(s *settings.SourceState) {
			s.Sequence = 20
			s.Newest = time.Now().Add(time.Hour)
		})

		f.publish("S", 11, 30)
		f.waitUntilDrawn(30)
		var want []string

		for p := range 3 {
			for i := 1; i <= 30; i++ {
				if i%3 == p && (i <= 10 || i > 20) {
					want = append(want, strconv.Itoa(i))
				}
			}
		}
		f.wantList("items", f.pop("jobs", value), want...)
	})
}

// Messages as large as the server carries are drawn, and one that is too large for any item is a
// dead letter.
func TestLargeMessages(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t,
			testenv.Options{NATS: func(o *server.Options) { o.MaxPayload = 12 << 20 }})
		f.createStream("S", jetstream.LimitsPolicy)
		want := []string{}

		for i, size := range []int{5 << 20, 12 << 20, 4 << 20, 1} {
			_, err := f.js.Publish(t.Context(), "S.x", make([]byte, size))
			f.must(err)
			want = append(want, fmt.Sprint(size, " S ", i+1))
		}
		f.must(f.setSource(`{"stream":"S"}`))
		if s := f.waitUntilDrawn(4); s.Drawn != 3 || s.Dead != 1 {
			t.Errorf("drawn: %s", s.JSON())
		}

		text := func(item *fdbpq.Item) string {
			return fmt.Sprint(len(item.Message.Value), " ", item.Message.Headers["Pq-Source"][0])
		}
		f.wantList("dead", f.popBy(1, "jobs-dead", text), "0 S 2") // without its value
		f.wantList("items", f.popBy(1, "jobs", text), want[0], want[2], want[3])
	})
}

// A source with nothing to draw makes no transactions.
func TestIdle(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		var counted *countkv.DB
		f := newFixture(t, testenv.Options{Wrap: func(db kv.Database) kv.Database {
			counted = countkv.New(db)
			return counted
		}})

		f.createStream("S", jetstream.LimitsPolicy)
		f.must(f.setSource(source("S")))
		f.publish("S", 1, 5)
		f.waitUntilDrawn(5)

		f.wantItems(1, 5)

		// The bridge finishes its work before it is idle.
		testenv.Eventually(t, func() error {
			counted.Take()
			<-time.After(300 * time.Millisecond)

			if n := len(counted.Take()); n > 0 {
				return fmt.Errorf("%d transactions", n)
			}

			return nil
		})
	})
}

// A setting that is no source is refused over NATS with the reason, and not set. A source of a FIFO
// queue has no priority, and is shown as it was set.
func TestBadSources(t *testing.T) {
	f := newFixture(t, testenv.Options{})
	for bad, want := range map[string]string{
		`{}`:                                `stream: ""`,
		`[]`:                                "want a JSON object with members of stream, domain,",
		`{"stream":5}`:                      "stream: 5: want a string in quotes",
		`{"stream":"S","strem":"S"}`:        `unknown member "strem": want`,
		`{"stream":"S","domain":"a b"}`:     "domain:",
		`{"stream":"S","filter":"a..b"}`:    `filter: "a..b"`,
		`{"stream":"S","group":7}`:          "group: a number",
		`{"stream":"S","start":"old"}`:      `start: "old": want "all", "new" or a sequence`,
		`{"stream":"S","on_bad":"drop"}`:    `on_bad: "drop": want "dead_letter" or "stop"`,
		`{"stream":"S","when_full":"drop"}`: `when_full: "drop": want "wait"`,

		`{"stream":"S","group":{"headr":"x"}}`:        `group: {"headr":"x"}: want a number`,
		`{"stream":"S","start":18446744073709551616}`: "start: 18446744073709551616",
		`{"stream":"S","priority":{"token":65}}`: `priority: {"token":65}: want a number, ` +
			`{"header":"X-Name"} or {"token":3}, with a token from 1 to 64`,
	} {
		err := f.setSource(bad)
		if err == nil || !strings.Contains(err.Error(), "source: ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
	if _, err := f.state(); err == nil {
		t.Error("a bad source was set")
	}

	reply := f.Request("q.mail.config", nil, []byte(`{"source":{"stream":"S","priority":5}}`))
	if err := subjects.ErrorFromHeaders(reply.Header); err == nil ||
		!strings.Contains(err.Error(), "a FIFO queue has none") {
		t.Errorf("a FIFO queue: %v", err)
	}

	reply = f.Request("q.mail.config", nil, []byte(` {"source": {"start":"all", "stream":"S"}}`))
	if want := `{"source":{"start":"all", "stream":"S"}}`; string(reply.Data) != want {
		t.Errorf("settings: %s, want %s", reply.Data, want)
	}
}

// With the rights in docs/sources.md, a bridge draws without an error of NATS, and metrics and info
// show how far.
func TestRights(t *testing.T) {
	document, err := os.ReadFile("../../docs/sources.md")
	if err != nil {
		t.Fatal(err)
	}

	_, text, _ := strings.Cut(string(document), "SOURCES = ")
	text, _, _ = strings.Cut(text, "]")

	var rights []string
	if err := json.Unmarshal([]byte(text+"]"), &rights); err != nil {
		t.Fatal(err)
	}

	allowed := append(rights, "_INBOX.>", "_pqbridge.>")
	for _, retention := range retentions {
		f := newFixture(t, withRights(server.Permissions{
			Publish: &server.SubjectPermission{Allow: allowed},
			Subscribe: &server.SubjectPermission{
				Allow: []string{"pq.>", "q.>", "$SRV.>", "_PQ.>", "_pqbridge.>", "_INBOX.>"},
			},
		}))

		f.js, err = jetstream.New(f.Conn, jetstream.WithDefaultTimeout(testenv.Patience))
		f.must(err)
		f.createStream("ORDERS", retention)
		f.must(f.setSource(source("ORDERS", `"filter":"ORDERS.*"`)))

		f.waitForConsumers("ORDERS", 1)
		f.publish("ORDERS", 1, 10)
		f.waitUntilDrawn(10)

		f.wantItems(1, 10)
		// The drawer learns of its commit a moment after others.
		testenv.Eventually(t, func() error {
			_, metrics, err := f.Bridge.Get("/metrics")
			for _, line := range []string{
				"pq_nats_errors_total 0", `pq_source_drawn_total{kind="priority",queue="jobs"} 10`,
				`pq_source_lag{kind="priority",queue="jobs"} 0`,
				`pq_source_stopped{kind="priority",queue="jobs"} 0`,
			} {
				if err == nil && !strings.Contains(string(metrics), "\n"+line+"\n") {
					err = fmt.Errorf("%v: metrics without %s", retention, line)
				}
			}

			return err
		})

		info, err := subjects.ParseQueueInfo(f.Request("pq.jobs.info", nil, nil).Data)
		f.must(err)
		if info.Source == nil || info.Source.String() != "drawn to 10, 0 left" {
			t.Errorf("info: %+v", info.Source)
		}
		f.Bridge.MustStop()
	}
}
