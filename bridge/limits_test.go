package bridge_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// A pause lets nobody have items, and those who wait for them get them when it ends. Pushes, peeks and
// acknowledgements go on.
func TestPause(t *testing.T) {
	testenv.Each(t, func(t *testing.T, engine testenv.Engine) {
		e := testenv.New(t, testenv.Options{Engine: engine})
		for _, kind := range kinds {
			push(t, e, kind.push, nil, "a")
			token := leased(t, e, kind.pop, `{"ack_wait":"1m"}`, "a")
			until := time.Now().Add(time.Hour).UTC().Format(subjects.TimeLayout)
			setting := fmt.Sprintf(`{"pause_until":%q}`, until)
			configured(t, e, kind.queue, setting, setting)
			push(t, e, kind.push, nil, "b")
			for _, payload := range []string{``, `{"ack_wait":"1m"}`, `{"batch":5}`, `{"expires":"1ms"}`} {
				err := refused(t, e, 404, kind.pop, nil, []byte(payload))
				if !strings.Contains(err.Text, "paused until ") {
					t.Errorf("%s %s: %v", kind.pop, payload, err)
				}
			}
			if m := ok(t, e, kind.peek, nil, ""); string(m.Data) != "b" {
				t.Errorf("peeked %q", m.Data)
			}
			isError(t, 404, token, e.Request(token, nil, []byte("+NXT")))
			isError(t, 409, token, e.Request(token, nil, []byte("+ACK")))

			waits := func() chan *nats.Msg {
				got := make(chan *nats.Msg, 1)
				go func() { got <- e.Request(kind.pop, nil, []byte(`{"expires":"1m"}`)) }()
				return got
			}
			lifted := waits()
			configured(t, e, kind.queue, `{"pause_until":null}`, `{}`)
			if m := <-lifted; string(m.Data) != "b" {
				t.Errorf("a pop that waited got %q, %v", m.Data, m.Header)
			}
			soon := time.Now().Add(200 * time.Millisecond)
			ok(t, e, kind.queue+".config", nil, fmt.Sprintf(`{"pause_until":%q}`, soon.Format(time.RFC3339Nano)))
			over := waits()
			push(t, e, kind.push, nil, "c")
			if m := <-over; string(m.Data) != "c" || time.Now().Before(soon) {
				t.Errorf("%v before the end, a pop that waited got %q, %v", time.Until(soon), m.Data, m.Header)
			}
		}
	})
}
