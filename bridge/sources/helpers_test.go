package sources_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// subtest is t.Run in a bubble.
func subtest(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { testenv.Bubble(t, test) })
}

// fixture is a system with JetStream.
type fixture struct {
	testing.TB
	*testenv.Env
	js jetstream.JetStream
}

func newFixture(t testing.TB, o testenv.Options) *fixture {
	t.Helper()
	dir, change := t.TempDir(), o.NATS
	o.NATS = func(n *server.Options) {
		n.JetStream, n.StoreDir = true, dir
		if change != nil {
			change(n)
		}
	}

	f := &fixture{TB: t, Env: testenv.New(t, o)}
	var err error
	f.js, err = jetstream.New(f.Conn)
	f.must(err)

	return f
}

// withRights are options of a system whose bridge has these rights.
func withRights(p server.Permissions) testenv.Options {
	return testenv.Options{
		NATS: func(o *server.Options) {
			bridge := &server.User{Username: "bridge", Password: "x", Permissions: &p}
			o.Users = []*server.User{{Username: "admin", Password: "x"}, bridge}
			o.NoAuthUser = "admin"
		},
		Bridge: func(o *bridge.Options) {
			o.NATSOptions = append(o.NATSOptions, nats.UserInfo("bridge", "x"))
		},
	}
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// createStream creates a stream of the subjects below its name.
func (f *fixture) createStream(name string, retention jetstream.RetentionPolicy) jetstream.Stream {
	f.Helper()
	s, err := f.js.CreateStream(f.Context(),
		jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, Retention: retention})
	f.must(err)

	return s
}

// publish publishes numbers from one to another. Each number modulo 3 is its priority, and the
// second token of its subject.
func (f *fixture) publish(stream string, from, to int) {
	f.Helper()
	for i := from; i <= to; i++ {
		m := nats.NewMsg(fmt.Sprintf("%s.%d", stream, i%3))
		m.Data = []byte(strconv.Itoa(i))
		m.Header.Set("X-Priority", strconv.Itoa(i%3))
		_, err := f.js.PublishMsgAsync(m)
		f.must(err)
	}

	<-f.js.PublishAsyncComplete()
}

// setSource sets the source of the queue jobs, and returns why it cannot be.
func (f *fixture) setSource(source string) error {
	f.Helper()
	reply := f.Request("pq.jobs.config", nil, []byte(`{"source":`+source+`}`))

	if err := subjects.ErrorFromHeaders(reply.Header); err != nil {
		return err
	}

	return nil
}

var errNoSource = errors.New("no source")

// state returns the state of the source of jobs.
func (f *fixture) state() (s settings.SourceState, err error) {
	q := f.queue("jobs")
	results, err := kv.ReadTransact(f.Context(), f.DB, func(r kv.Reader) ([]fdbpq.Result, error) {
		return fdbpq.Read(r, []fdbpq.Op{{Kind: fdbpq.OpSettings, Queue: q}})
	})

	if err == nil && results[0].Source == nil {
		err = errNoSource
	}
	if err != nil {
		return s, err
	}

	return settings.ParseSourceState(results[0].Source)
}

// eventually waits until the state of the source is right, and returns it.
func (f *fixture) eventually(right func(s *settings.SourceState) bool) (s settings.SourceState) {
	f.Helper()
	testenv.Eventually(f.TB, func() (err error) {
		if s, err = f.state(); err == nil && !right(&s) {
			err = fmt.Errorf("the source is %s", s.JSON())
		}
		return err
	})

	return s
}

// waitUntilDrawn waits until the source has drawn up to a sequence number.
func (f *fixture) waitUntilDrawn(to uint64) settings.SourceState {
	f.Helper()
	return f.eventually(func(s *settings.SourceState) bool { return s.Sequence >= to })
}

// waitUntilStopped waits until the source has stopped, for a reason that has these texts.
func (f *fixture) waitUntilStopped(with ...string) settings.SourceState {
	f.Helper()
	s := f.eventually(func(s *settings.SourceState) bool { return s.Stopped != "" })

	for _, text := range with {
		if !strings.Contains(s.Stopped, text) {
			f.Errorf("stopped: %q, without %q", s.Stopped, text)
		}
	}

	return s
}

// waitForConsumers waits until a stream has that many consumers.
func (f *fixture) waitForConsumers(stream string, want int) {
	f.Helper()
	f.waitForState(stream, want, "consumers",
		func(s *jetstream.StreamState) int { return s.Consumers })
}

// waitForMessages waits until a stream has that many messages.
func (f *fixture) waitForMessages(stream string, want int) {
	f.Helper()
	f.waitForState(stream, want, "messages",
		func(s *jetstream.StreamState) int { return int(s.Msgs) })
}

// waitUntilAcknowledged waits until nothing is left of the messages of a stream.
func (f *fixture) waitUntilAcknowledged(stream string) {
	f.Helper()
	f.waitForMessages(stream, 0)
}

// waitForState waits until what count returns of the state of a stream is the wanted number.
func (f *fixture) waitForState(
	stream string, want int, of string, count func(s *jetstream.StreamState) int,
) {
	f.Helper()
	testenv.Eventually(f.TB, func() error {
		s, err := f.js.Stream(f.Context(), stream)
		if err != nil {
			return err
		}

		if n := count(&s.CachedInfo().State); n != want {
			return fmt.Errorf("stream %s has %d %s, want %d", stream, n, of, want)
		}

		return nil
	})
}

func (f *fixture) queue(name string) *fdbpq.PriorityQueue {
	f.Helper()
	q, err := f.Keyspace.PriorityQueue(name)
	f.must(err)
	return q
}

// pop pops all items of a queue, and returns what text makes of each.
func (f *fixture) pop(name string, text func(item *fdbpq.Item) string) (texts []string) {
	f.Helper()
	return f.popBy(100, name, text)
}

// popBy is pop, of n items at a time.
func (f *fixture) popBy(n int, name string, text func(item *fdbpq.Item) string) (texts []string) {
	f.Helper()
	for {
		some := f.take(n, name, text)
		if texts = append(texts, some...); len(some) < n {
			return texts
		}
	}
}

// take pops n items, or all, in one transaction.
func (f *fixture) take(n int, name string, text func(item *fdbpq.Item) string) (texts []string) {
	f.Helper()
	ops := make([]fdbpq.Op, n)

	for i := range ops {
		ops[i] = fdbpq.Op{Kind: fdbpq.OpPop, Queue: f.queue(name)}
	}

	results, err := kv.Transact(f.Context(), f.DB, func(tx kv.Transaction) ([]fdbpq.Result, error) {
		return fdbpq.Apply(tx, ops, time.Now())
	})
	f.must(err)

	for i := range results {
		if errors.Is(results[i].Err, fdbpq.ErrEmpty) {
			return texts
		}
		f.must(results[i].Err)
		texts = append(texts, text(&results[i].Item))
	}

	return texts
}

// wantItems checks that the queue has the numbers from one to another, in the order of the stream
// within each priority, and pops them.
func (f *fixture) wantItems(from, to int) {
	f.Helper()
	var want []string

	for p := range 3 {
		for i := from; i <= to; i++ {
			if i%3 == p {
				want = append(want, strconv.Itoa(i))
			}
		}
	}

	got := f.pop("jobs", value)
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			f.Fatalf("%d items, want %d; they differ from %d on: %.200v", len(got), len(want), i,
				got[min(i, len(got)):])
		}
	}

	_, err := fdbpqtest.CheckInvariants(context.Background(), f.DB, "pq", "q")
	f.must(err)
}

func (f *fixture) wantList(what string, got []string, want ...string) {
	f.Helper()
	if !slices.Equal(got, want) {
		f.Errorf("%s: %q, want %q", what, got, want)
	}
}

func value(item *fdbpq.Item) string { return string(item.Message.Value) }

// source returns the JSON of a source that takes priorities as publish sets them, with further
// members.
func source(stream string, members ...string) string {
	name, _ := json.Marshal(stream)
	return `{` + strings.Join(append([]string{
		`"stream":` + string(name), `"priority":{"header":"X-Priority"}`,
	}, members...), ",") + `}`
}
