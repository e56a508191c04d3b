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
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/testenv"
)

// A message that cannot be an item goes to the dead-letter queue, or stops the source until it is set
// again.
func TestBadMessages(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{})
		f.stream("S", jetstream.LimitsPolicy)
		f.publish("S", 1, 3)
		m := nats.NewMsg("S.x")
		m.Header, m.Data = nats.Header{"X-Priority": {"urgent"}}, []byte("bad")
		_, err := f.js.PublishMsg(t.Context(), m)
		f.must(err)
		f.publish("S", 5, 6)

		f.must(f.set(source("S")))
		if s := f.drawn(6); s.Drawn != 5 || s.Dead != 1 || s.Lag != 0 {
			t.Errorf("drawn: %s", s.JSON())
		}
		f.wantList("items", f.pop("jobs", value), "3", "6", "1", "2", "5")
		f.wantList("dead letters", f.pop("jobs-dead", func(item *fdbpq.Item) string {
			d := item.Message.DeadLetter
			return fmt.Sprint(string(item.Message.Value), item.Message.Headers, " ", d.Queue, ": ", d.Reason)
		}), `badmap[Pq-Source:[S 4] X-Priority:[urgent]] jobs: message 4 of stream S: header X-Priority: bad priority "urgent": want a decimal integer, such as 5 or -5`)

		f.must(f.set(source("S", `"start":2`, `"on_bad":"stop"`)))
		f.stopped("message 4", `bad priority "urgent"`, `"start":5`)
		f.wantList("before it", f.pop("jobs", value), "3", "2")
		f.must(f.set(source("S", `"start":5`, `"on_bad":"stop"`)))
		f.drawn(6)
		f.wantList("after it", f.pop("jobs", value), "6", "5")
		f.must(f.set(`{"stream":"S","start":3,"on_bad":"stop","priority":7}`))
		f.drawn(6)
		f.wantList("with another priority", f.pop("jobs", value), "3", "bad", "5", "6")
	})
}

// A message that looks like one of the server's is a bad message like others: wherever it is, it holds
// nobody back.
func TestStatus(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{})
		f.stream("S", jetstream.WorkQueuePolicy)
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
		f.must(f.set(`{"stream":"S","on_bad":"stop"}`))
		f.stopped("message 2 of stream S: header Status without a value", "nats stream rmm S 2", `"on_bad":"dead_letter"`)
		f.must(f.set(`{"stream":"S"}`))
		if s := f.drawn(7); s.Drawn != 3 || s.Dead != 4 || s.Lag != 0 {
			t.Errorf("drawn: %s", s.JSON())
		}
		f.acknowledged("S")
		f.wantList("items", f.pop("jobs", value), "1", "3", "6")
		f.wantList("dead letters", f.take(1, "jobs-dead", func(item *fdbpq.Item) string { return fmt.Sprint(item.Message.Headers) }),
			"map[A:[b] Description:[Consumer Deleted] Pq-Source:[S 2]]")

		// What a former source has drawn from a work queue is acknowledged.
		f.must(f.Bridge.Stop())
		m := nats.NewMsg("S.x")
		m.Header.Set("Status", "404")
		_, err := f.js.PublishMsg(t.Context(), m)
		f.must(err)
		f.change(func(s *settings.SourceState) {
			s.Former = []settings.SourceConsumer{{Stream: "S", Name: s.Consumer, Sequence: 8, Newest: time.Now()}}
		})
		f.StartBridge().WaitReady()
		f.acknowledged("S")
		if s := f.eventually(func(s *settings.SourceState) bool { return s.Former == nil }); s.Dead != 4 {
			t.Errorf("drawn: %s", s.JSON())
		}
	})
}

// Headers that no item can have are in no item: the message is a bad one.
func TestBadHeaders(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		f := newFixture(t, testenv.Options{})
		f.stream("S", jetstream.LimitsPolicy)
		conn, err := f.NATS.InProcessConn()
		f.must(err)
		defer conn.Close()
		go io.Copy(io.Discard, conn)
		_, err = io.WriteString(conn, "CONNECT {\"headers\":true,\"verbose\":false}\r\n")
		f.must(err)
		wants := []string{}
		for lines, want := range map[string]string{
			"Größe: XL\r\nA(b): c\r\n":      `headers ["A(b): c" "Größe: XL"]: want names`,
			"Kunde Nr:5\r\n":                `headers ["Kunde Nr: 5"]`,
			"a: x\ry\r\n":                   `headers ["a: x\ry"]`,
			"no colon\r\na: b\r\n":          "the headers cannot be read",
			": lost\r\na: b\r\n":            "more than one way",
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
		f.has("S", 7, "messages", func(s *jetstream.StreamState) int { return int(s.Msgs) })

		f.must(f.set(`{"stream":"S"}`))
		if s := f.drawn(7); s.Dead != 5 {
			t.Errorf("drawn: %s", s.JSON())
		}
		for _, reason := range f.pop("jobs-dead", func(item *fdbpq.Item) string { return item.Message.DeadLetter.Reason }) {
			i := slices.IndexFunc(wants, func(want string) bool { return strings.Contains(reason, want) })
			if i < 0 {
				t.Fatalf("dead: %s", reason)
			}
			wants = slices.Delete(wants, i, i+1)
		}
	})
}
