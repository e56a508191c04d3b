package dashboard

import (
	"cmp"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// A slow bridge has whole pages. Once it hangs, they soon say so, and the outcome of a form is
// shown when it is known.
func TestHang(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		env := testenv.New(t, testenv.Options{})
		grammar, err := subjects.New("slow-pq", "slow-q")
		must(t, err)

		var hangs atomic.Bool
		_, err = env.Conn.Subscribe(">", func(m *nats.Msg) {
			if to, isSlow := strings.CutPrefix(m.Subject, "slow-"); isSlow && !hangs.Load() {
				time.AfterFunc(2*time.Second, func() {
					// Fails only when the test ends.
					_ = env.Conn.PublishMsg(
						&nats.Msg{Subject: to, Reply: m.Reply, Header: m.Header, Data: m.Data})
				})
			}
		})
		must(t, cmp.Or(err, env.Conn.Flush()))

		d, err := New(Options{
			Listen:  "127.0.0.1:0",
			Conn:    env.Connect(),
			Grammar: grammar,
			Timeout: 10 * time.Second,
			Log:     slog.New(slog.DiscardHandler),
		})
		must(t, err)
		defer func() { _ = d.listener.Close() }() // nothing was accepted

		do := func(method, path string, code int, atMost time.Duration, words ...string) answer {
			t.Helper()
			began := time.Now()
			w := httptest.NewRecorder()
			r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader("value=x"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")

			if d.guard.wrap(d.routes()).ServeHTTP(w, r); time.Since(began) > atMost {
				t.Errorf("%s %s took %v", method, path, time.Since(began))
			}

			result := w.Result()
			result.Request = r
			return answer{result, w.Body.String()}.wants(t, code, words...)
		}

		do("POST", "/queue/pq/jobs/push", 200, 10*time.Second, "pushed ")
		whole := do("GET", "/queue/pq/jobs", 200, 7*time.Second, `class="connected"`,
			"<bdi>x</bdi>")
		hangs.Store(true)
		time.Sleep(refreshTime)

		late := do("GET", "/queue/pq/jobs", 200, 7*time.Second, `class="away"`, "no bridge answers")
		if asOf(late) != asOf(whole) {
			t.Errorf("figures of %s are as of %s", asOf(whole), asOf(late))
		}

		for _, path := range []string{"mail", "jobs/items", "jobs/item/x"} {
			do("GET", "/queue/pq/"+path, 503, 7*time.Second, `class="away"`,
				"no bridge answers</p>")
		}

		do("POST", "/queue/pq/jobs/push", 504, 10*time.Second, "the outcome is unknown: ")
		do("POST", "/queue/pq/jobs/pause", 504, 10*time.Second, "the outcome is unknown: ")
	})
}
