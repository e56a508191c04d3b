package sources_test

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/testenv"
)

// A message that cannot be an item goes to the dead-letter queue, or stops the source until it is
// set again.
func TestBadMessages(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{})
		f.createStream("S", jetstream.LimitsPolicy)
		f.publish("S", 1, 3)
		m := nats.NewMsg("S.x")
		m.Header, m.Data = nats.Header{"X-Priority": {"urgent"}}, []byte("bad")
		_, err := f.js.PublishMsg(t.Context(), m)
		f.must(err)

		f.publish("S", 5, 6)

		f.must(f.setSource(source("S")))
		if s := f.waitUntilDrawn(6); s.Drawn != 5 || s.Dead != 1 || s.Lag != 0 {
			t.Errorf("drawn: %s", s.JSON())
		}
		f.wantList("items", f.pop("jobs", value), "3", "6", "1", "2", "5") // by priority

		dead := f.pop("jobs-dead", func(item *fdbpq.Item) string {
			m, d := &item.Message, item.Message.DeadLetter
			return fmt.Sprint(string(m.Value), m.Headers, " ", d.Queue, ": ", d.Reason)
		})
		f.wantList("dead letters", dead, `badmap[Pq-Source:[S 4] X-Priority:[urgent]] jobs: `+
			`message 4 of stream S: header X-Priority: bad priority "urgent": `+
			`want a decimal integer, such as 5 or -5`)

		f.must(f.setSource(source("S", `"start":2`, `"on_bad":"stop"`)))
		f.waitUntilStopped("message 4", `bad priority "urgent"`, `"start":5`)
		f.wantList("before it", f.pop("jobs", value), "3", "2")
		f.must(f.setSource(source("S", `"start":5`, `"on_bad":"stop"`)))

		f.waitUntilDrawn(6)
		f.wantList("after it", f.pop("jobs", value), "6", "5")
		f.must(f.setSource(`{"stream":"S","start":3,"on_bad":"stop","priority":7}`))

		f.waitUntilDrawn(6)
		f.wantList("with another priority", f.pop("jobs", value), "3", "bad", "5", "6")
	})
}

// A message that is larger than max_bytes of the queue is a bad message, which stops the source or
// becomes a dead letter. The messages behind it are drawn.
func TestLargerThanTheQueue(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{})
		f.createStream("S", jetstream.LimitsPolicy)
		f.Request("pq.jobs.config", nil, []byte(`{"max_bytes":100}`))
		f.publish("S", 1, 2)
		_, err := f.js.Publish(t.Context(), "S.x", []byte(strings.Repeat("x", 101))) // message 3
		f.must(err)

		f.publish("S", 4, 5)

		f.must(f.setSource(`{"stream":"S","on_bad":"stop"}`))
		f.waitUntilStopped("message 3 of stream S",
			"max_bytes of the queue is 100: raise that limit and set the source again",
			`"on_bad":"dead_letter"`, `"start":4`)
		f.wantList("before it", f.pop("jobs", value), "1", "2")

		f.must(f.setSource(`{"stream":"S","start":3}`))
		if s := f.waitUntilDrawn(5); s.Drawn != 2 || s.Dead != 1 || s.Lag != 0 || s.Waiting != "" {
			t.Errorf("drawn: %s", s.JSON())
		}
		f.wantList("items", f.pop("jobs", value), "4", "5")
		dead := f.pop("jobs-dead", func(item *fdbpq.Item) string {
			return fmt.Sprint(len(item.Message.Value), " ", item.Message.DeadLetter.Reason)
		})
		f.wantList("dead letters", dead, "101 message 3 of stream S: the message is too large: "+
			"it has 117 bytes as an item, and max_bytes of the queue is 100")
	})
}

// A message with a header Status, as the server's own have, is a bad message. The others around it
// are drawn, and all are acknowledged, even if only a former source has drawn one.
func TestStatus(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{})
		f.createStream("S", jetstream.WorkQueuePolicy)

		// Messages 1, 3 and 6 have no status.
		for i, status := range []string{"", "404", "", "400", "100", "", "409"} {
			m := nats.NewMsg("S.x")
			if m.Header.Set("A", "b"); status == "" {
				m.Data = []byte(strconv.Itoa(i + 1))
			} else {
				m.Header.Set("Status", status)
				m.Header.Set("Description", "Consumer Deleted")
			}

			_, err := f.js.PublishMsg(t.Context(), m)
			f.must(err)
		}
		f.must(f.setSource(`{"stream":"S","on_bad":"stop"}`))
		f.waitUntilStopped("message 2 of stream S: header Status without a value",
			"nats stream rmm S 2", `"on_bad":"dead_letter"`)
		f.must(f.setSource(`{"stream":"S"}`))

		if s := f.waitUntilDrawn(7); s.Drawn != 3 || s.Dead != 4 || s.Lag != 0 {
			t.Errorf("drawn: %s", s.JSON())
		}

		f.waitUntilAcknowledged("S")
		f.wantList("items", f.pop("jobs", value), "1", "3", "6")
		dead := f.take(1, "jobs-dead", func(item *fdbpq.Item) string {
			return fmt.Sprint(item.Message.Headers)
		})
		f.wantList("dead letters", dead,
			"map[A:[b] Description:[Consumer Deleted] Pq-Source:[S 2]]")

		// Messages that a former source has drawn from a work queue are acknowledged.
		f.must(f.Bridge.Stop())
		m := nats.NewMsg("S.x")
		m.Header.Set("Status", "404")
		_, err := f.js.PublishMsg(t.Context(), m)
		f.must(err)

		f.changeState(func(s *settings.SourceState) {
			s.Former = []settings.SourceConsumer{{
				Stream:   "S",
				Name:     s.Consumer,
				Sequence: 8,
				Newest:   time.Now(),
			}}
		})

		f.StartBridge().WaitReady()
		f.waitUntilAcknowledged("S")
		s := f.eventually(func(s *settings.SourceState) bool { return s.Former == nil })
		if s.Dead != 4 { // as before
			t.Errorf("drawn: %s", s.JSON())
		}
	})
}

// A message with headers that no item can have is a bad one, with a reason that names them.
func TestBadHeaders(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{})
		f.createStream("S", jetstream.LimitsPolicy)
		conn, err := f.NATS.InProcessConn()
		f.must(err)

		defer conn.Close()
		go io.Copy(io.Discard, conn)
		_, err = io.WriteString(conn, "CONNECT {\"headers\":true,\"verbose\":false}\r\n")
		f.must(err)

		wants := []string{}
		for lines, want := range map[string]string{
			"Größe: XL\r\nA(b): c\r\n": `headers ["A(b): c" "Größe: XL"]: want names`,
			"Kunde Nr:5\r\n":           `headers ["Kunde Nr: 5"]`,
			"a: x\ry\r\n":              `headers ["a: x\ry"]`,
			"no colon\r\na: b\r\n":     "the headers cannot be read",
			": lost\r\na: b\r\n":       "more than one way",

			// Good ones.
			"a:b\r\nNats-Msg-Id: 7\r\n":     "",
			"status: a\r\nNmqtt-Pub: 1\r\n": "",
		} {
			block := "NATS/1.0\r\n" + lines + "\r\n"
			_, err = fmt.Fprintf(conn, "HPUB S.x %d %d\r\n%sv\r\n", len(block), len(block)+1, block)
			f.must(err)

			if want != "" {
				wants = append(wants, want)
			}
		}

		f.waitForMessages("S", 7)

		f.must(f.setSource(`{"stream":"S"}`))
		if s := f.waitUntilDrawn(7); s.Dead != 5 {
			t.Errorf("drawn: %s", s.JSON())
		}

		reasons := f.pop("jobs-dead", func(item *fdbpq.Item) string {
			return item.Message.DeadLetter.Reason
		})
		for _, reason := range reasons {
			named := func(want string) bool { return strings.Contains(reason, want) }
			i := slices.IndexFunc(wants, named)
			if i < 0 {
				t.Fatalf("dead: %s", reason)
			}

			wants = slices.Delete(wants, i, i+1)
		}
		if len(wants) > 0 {
			t.Errorf("no dead letters with the reasons %q", wants)
		}
	})
}
