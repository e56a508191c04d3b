package sources_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/testenv"
)

// logBuffer collects what bridges log.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// count returns how many lines of the log contain a text.
func (l *logBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// logged has the bridges of these options write their logs into the buffer.
func logged(o testenv.Options) (testenv.Options, *logBuffer) {
	log, change := &logBuffer{}, o.Bridge
	o.Bridge = func(b *bridge.Options) {
		b.Logger = slog.New(slog.NewTextHandler(log, nil))
		if change != nil {
			change(b)
		}
	}

	return o, log
}

// countLooks counts the requests for the state of a consumer.
func (f *fixture) countLooks() *atomic.Int64 {
	f.Helper()
	looks := new(atomic.Int64)
	_, err := f.Conn.Subscribe("$JS.API.CONSUMER.INFO.S.*", func(*nats.Msg) { looks.Add(1) })
	f.must(err)
	f.must(f.Conn.Flush())

	return looks
}

// A source whose consumer is paused says so, with how much is left, and logs it once. It draws when
// the consumer is resumed.
func TestPausedConsumer(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		options, log := logged(testenv.Options{})
		f := newFixture(t, options)
		s := f.startDrawing(jetstream.LimitsPolicy, 5)
		until := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
		consumer := f.waitUntilDrawn(5).Consumer
		_, err := s.PauseConsumer(t.Context(), consumer, until)
		f.must(err)

		f.publish("S", 6, 12)

		want := fmt.Sprintf("consumer %s of stream S is paused until %s", consumer,
			until.Format(time.RFC3339))
		f.eventually(func(s *settings.SourceState) bool {
			return s.Lag == 7 && strings.Contains(s.Waiting, want)
		})

		info, err := subjects.ParseQueueInfo(f.Request("pq.jobs.info", nil, nil).Data)
		f.must(err)
		if !strings.Contains(info.Source.String(), "drawn to 5, 7 left, waiting: the "+want) {
			t.Errorf("info: %v", info.Source)
		}

		// More looks find it again, and say nothing new.
		<-time.After(5 * time.Minute)
		if n := log.count("is paused until"); n != 1 {
			t.Errorf("the log says %d times that the consumer is paused, want 1", n)
		}

		_, err = s.ResumeConsumer(t.Context(), consumer)
		f.must(err)
		f.eventually(func(s *settings.SourceState) bool {
			return s.Sequence == 12 && s.Lag == 0 && s.Waiting == ""
		})
		f.wantItems(1, 12)

		f.waitForConsumers("S", 1)
	})
}

// A source looks at its consumer five seconds after the last message, however recently it has
// looked before, so that a pause soon shows.
func TestPauseSoonAfterLook(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{})
		s := f.startDrawing(jetstream.LimitsPolicy, 5)
		consumer, looks := f.waitUntilDrawn(5).Consumer, f.countLooks()

		for looks.Load() == 0 {
			<-time.After(time.Second)
		}

		f.publish("S", 6, 6)
		f.waitUntilDrawn(6)

		paused := time.Now()
		_, err := s.PauseConsumer(t.Context(), consumer, paused.Add(time.Hour))
		f.must(err)

		f.publish("S", 7, 12)

		f.eventually(func(s *settings.SourceState) bool {
			return s.Lag == 6 && strings.Contains(s.Waiting, "is paused until")
		})
		const bound = 15 * time.Second // a look at the first heartbeat after five seconds
		if took := time.Since(paused); took > bound {
			t.Errorf("the state says it after %v, want at most %v", took, bound)
		}
	})
}

// The state says that a consumer is paused, and then that it is resumed, even if nothing is left to
// draw.
func TestPauseWithNothingLeft(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{})
		s := f.startDrawing(jetstream.WorkQueuePolicy, 5)
		consumer := f.waitUntilDrawn(5).Consumer
		_, err := s.PauseConsumer(t.Context(), consumer, time.Now().Add(time.Hour))
		f.must(err)

		f.eventually(func(s *settings.SourceState) bool { return s.Waiting != "" && s.Lag == 0 })

		_, err = s.ResumeConsumer(t.Context(), consumer)
		f.must(err)

		f.eventually(func(s *settings.SourceState) bool { return s.Waiting == "" })
	})
}

// A source with nothing left asks for the state of its consumer once a minute, stays as it is, and
// logs no warning.
func TestLooksAreFew(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		options, log := logged(testenv.Options{})
		f := newFixture(t, options)
		f.startDrawing(jetstream.InterestPolicy, 5)
		before, looks := f.waitUntilDrawn(5), f.countLooks()

		<-time.After(time.Hour)

		if n := looks.Load(); n < 55 || n > 60 { // in an hour
			t.Errorf("%d requests in an hour, want one a minute", n)
		}

		after, err := f.state()
		f.must(err)
		if string(after.JSON()) != string(before.JSON()) || log.count("level=WARN") > 0 {
			t.Errorf("the source is %s, was %s; %d warnings", after.JSON(), before.JSON(),
				log.count("level=WARN"))
		}
	})
}

// divert changes a NATS server so that requests to a subject of JetStream's go to another subject.
func divert(from, to string) func(o *server.Options) {
	return func(o *server.Options) {
		global := server.NewAccount("$G")
		_ = global.AddMapping(from, to)
		o.Accounts = []*server.Account{global}
	}
}

// answerWithHeartbeats answers requests for messages with heartbeats alone, until the test ends.
func (f *fixture) answerWithHeartbeats(subject string) {
	f.Helper()
	requests, err := f.Conn.SubscribeSync(subject)
	f.must(err)

	var beating sync.WaitGroup
	beating.Go(func() {
		for {
			request, err := requests.NextMsg(time.Hour)
			if err != nil {
				return
			}

			// A pull that ends after half a minute.
			beating.Go(func() {
				for range 6 {
					<-time.After(5 * time.Second)
					_ = f.Conn.PublishMsg(&nats.Msg{
						Subject: request.Reply, Header: nats.Header{"Status": {"100"}},
					})
				}
				_ = f.Conn.PublishMsg(&nats.Msg{
					Subject: request.Reply,
					Header:  nats.Header{"Status": {"408"}, "Nats-Pending-Messages": {"4000"}},
				})
			})
		}
	})

	f.Cleanup(func() {
		_ = requests.Unsubscribe()
		beating.Wait()
	})
}

// A source that only gets heartbeats while its stream has messages says so until some come, without
// many requests. Then it draws with another consumer.
func TestNothingDelivered(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		options, log := logged(testenv.Options{
			NATS: divert("$JS.API.CONSUMER.MSG.NEXT.S.*", "muted"),
		})
		f := newFixture(t, options)
		f.answerWithHeartbeats("muted")
		f.createStream("S", jetstream.WorkQueuePolicy)
		f.must(f.setSource(source("S")))

		f.waitForConsumers("S", 1)
		looks := f.countLooks()
		f.publish("S", 1, 7)

		want := "no messages, although stream S has 7"
		s := f.eventually(func(s *settings.SourceState) bool {
			return s.Lag == 7 && strings.Contains(s.Waiting, want)
		})
		first := s.Consumer

		if log.count(want) != 1 {
			t.Errorf("the log says it %d times, want once by now", log.count(want))
		}

		// It stays so for ten minutes, which an alert may wait for.
		for range 600 {
			<-time.After(time.Second)
			s, err := f.state()
			f.must(err)

			if !strings.Contains(s.Waiting, want) {
				t.Fatalf("the source is %s", s.JSON())
			}
		}
		if n := looks.Load(); n > 12 {
			t.Errorf("%d requests in ten minutes, want one a minute", n)
		}

		// The server delivers again.
		f.NATS.Change(func(o *server.Options) {
			o.Accounts = []*server.Account{server.NewAccount("$G")}
		})
		f.NATS.Reload()
		f.eventually(func(s *settings.SourceState) bool {
			return s.Sequence == 7 && s.Lag == 0 && s.Waiting == "" && s.Consumer != first
		})
		f.wantItems(1, 7)

		f.waitForConsumers("S", 1)
	})
}

// A source whose consumer somebody has given another filter draws everything all the same, and logs
// once why.
func TestFilterOfConsumerChanged(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		options, log := logged(testenv.Options{})
		f := newFixture(t, options)
		s := f.startDrawing(jetstream.LimitsPolicy, 5)
		consumer, err := s.Consumer(t.Context(), f.waitUntilDrawn(5).Consumer)
		f.must(err)

		config := consumer.CachedInfo().Config
		config.FilterSubject = "S.other"
		_, err = s.UpdateConsumer(t.Context(), config)
		f.must(err)

		f.publish("S", 6, 10)

		f.eventually(func(s *settings.SourceState) bool {
			return s.Sequence == 10 && s.Removed == 0 && s.Waiting == ""
		})
		f.wantItems(1, 10)
		if log.count("the filter of its consumer was changed") != 1 {
			t.Errorf("the log does not say once why: %s", log.text.String())
		}
	})
}

// A bridge that cannot ask for the state of consumers draws as ever, and logs once what it cannot
// see. The state still says that a queue is full.
func TestMayNotLook(t *testing.T) {
	denied := &server.SubjectPermission{Deny: []string{"$JS.API.CONSUMER.INFO.>"}}
	for name, o := range map[string]testenv.Options{
		"denied":       withRights(server.Permissions{Publish: denied}),
		"not imported": {NATS: divert("$JS.API.CONSUMER.INFO.S.*", "nowhere")},
	} {
		subtest(t, name, func(t *testing.T) {
			options, log := logged(o)
			f := newFixture(t, options)
			f.startDrawing(jetstream.LimitsPolicy, 5)
			before := f.waitUntilDrawn(5)

			<-time.After(5 * time.Minute)
			f.publish("S", 6, 10)

			s := f.waitUntilDrawn(10)

			if s.Waiting != "" || s.Consumer != before.Consumer {
				t.Errorf("the source is %s, was %s", s.JSON(), before.JSON())
			}
			if n := log.count("cannot see whether its consumer is paused"); n != 1 {
				t.Errorf("the log says %d times that it cannot look, want once", n)
			}
			f.wantItems(1, 10)

			// The queue has room for messages 11 to 13.
			f.Request("pq.jobs.config", nil, []byte(`{"max_items":3}`))
			f.publish("S", 11, 20)
			f.eventually(func(s *settings.SourceState) bool {
				return s.Sequence == 13 && strings.Contains(s.Waiting, "full")
			})
		})
	}
}
