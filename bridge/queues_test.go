package bridge_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/testenv"
)

// The list has all queues of a kind, in pages in the order of their names, and counts due items as
// ready. Empty queues without settings are not in it.
func TestList(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		clock := newSteppedClock()
		e := testenv.New(t, testenv.Options{Engine: engine, Bridge: clock.options})

		for _, prefix := range []string{"pq", "q"} {
			pop := ".pop.min"
			if prefix == "q" {
				pop = ".pop"
			}

			wantAnswer(t, e, prefix+".list", "", `{"queues":[],"next":null}`)

			for _, name := range []string{"jobs", "list", "Zoo", "a-1", "empty"} {
				pushAll(t, e, prefix+"."+name+".push", "", "")
			}

			ok(t, e, prefix+".empty"+pop, nil, "")
			ok(t, e, prefix+".empty"+pop, nil, "")
			configure(t, e, prefix+".set", `{"max_deliver":3}`, `{"max_deliver":3}`)
			m := e.Request(prefix+".jobs"+pop, nil, []byte(`{"ack_wait":"1h"}`))
			acknowledge(t, e, m.Reply, "-NAK 1m")
			e.Request(prefix+".jobs"+pop, nil, []byte(`{"ack_wait":"1h"}`))

			all := []string{
				`{"queue":"Zoo","ready":2,"leased":0,"delayed":0}`,
				`{"queue":"a-1","ready":2,"leased":0,"delayed":0}`,
				`{"queue":"jobs","ready":0,"leased":1,"delayed":1}`,
				`{"queue":"list","ready":2,"leased":0,"delayed":0}`,
				`{"queue":"set","ready":0,"leased":0,"delayed":0}`,
			}

			page := func(next string, queues ...string) string {
				return `{"queues":[` + strings.Join(queues, ",") + `],"next":` + next + `}`
			}
			wantAnswer(t, e, prefix+".list", "", page("null", all...))
			wantAnswer(t, e, prefix+".list", `{"limit":2}`, page(`"a-1"`, all[:2]...))
			wantAnswer(t, e, prefix+".list", `{"limit":3,"after":"a-1"}`, page("null", all[2:]...))
			wantAnswer(t, e, prefix+".list", `{"limit":2,"after":"b"}`, page(`"list"`, all[2:4]...))
			wantAnswer(t, e, prefix+".list", `{"after":"set"}`, page("null"))

			// A due item is ready.
			clock.step(2 * time.Minute)
			wantAnswer(t, e, prefix+".list", `{"limit":1,"after":"a-1"}`,
				page(`"jobs"`, `{"queue":"jobs","ready":1,"leased":1,"delayed":0}`))
			wantAnswer(t, e, prefix+".list.len", "", `{"queue":"list","len":2}`)

			refused(t, e, 400, prefix+".list", nil, []byte(`{"limit":1001}`))
		}
		wantMetric(t, e.Bridge, `pq_requests_total{operation="list"}`, 8)
		wantMetric(t, e.Bridge, `pq_errors_total{code="400",operation="list"}`, 1)
	})
}

// A page takes few round trips however many queues are on it, and unused ones are passed over.
func TestListOfMany(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		var counts *countkv.DB
		e := testenv.New(t, testenv.Options{Engine: engine, Wrap: func(db kv.Database) kv.Database {
			counts = countkv.New(db)
			return counts
		}})

		const n = 1500

		ops := make([]fdbpq.Op, n)
		for i := range ops {
			q, err := e.Keyspace.PriorityQueue(fmt.Sprintf("q%04d", i))
			must(t, err)
			ops[i] = fdbpq.Op{Kind: fdbpq.OpPush, Queue: q}
		}

		batcher := fdbpq.NewBatcher(e.DB, e.Keyspace)
		if _, err := batcher.Apply(t.Context(), ops); err != nil {
			t.Fatal(err)
		}

		for i := range ops {
			ops[i].Kind = fdbpq.OpPop
		}
		if _, err := batcher.Apply(t.Context(), ops[:n-1]); err != nil {
			t.Fatal(err)
		}

		list := func(limit int) []countkv.Cost {
			counts.Take()
			wantAnswer(t, e, "pq.list", fmt.Sprintf(`{"limit":%d}`, limit), fmt.Sprintf(
				`{"queues":[{"queue":"q%04d","ready":1,"leased":0,"delayed":0}],"next":null}`, n-1))
			return counts.Take()
		}
		// 15 pages of names, of each the names, the counts, and which of the queues are unused. The
		// sweeper reads all of them at the start, which counts as well.
		waitUntil(t, "a page with few round trips", func() bool {
			rounds := 0
			for _, cost := range list(1) {
				rounds += cost.Rounds
			}

			return rounds <= 60
		})
		waitUntil(t, "a full page in few transactions", func() bool { return len(list(1000)) <= 8 })
	})
}

// A list that does not fit into a message is refused, and a shorter page is not.
func TestListTooLarge(t *testing.T) {
	e := start(t, testenv.Options{NATS: func(o *server.Options) { o.MaxPayload = 4096 }})
	for i := range 100 {
		push(t, e, fmt.Sprintf("pq.a-rather-long-name-of-a-queue-%03d.push", i), nil, "")
	}

	err := refused(t, e, 413, "pq.list", nil, nil)
	if !strings.Contains(err.Text, "the reply has") {
		t.Error(err)
	}

	ok(t, e, "pq.list", nil, `{"limit":20}`)
}

// getPage reads a page with any method.
func getPage(t *testing.T, b *testenv.Bridge, method, path string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+b.Addr()+path, nil)
	must(t, err)
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	reply, err := transport.RoundTrip(request)
	must(t, err)

	defer func() { _ = reply.Body.Close() }()
	data, err := io.ReadAll(reply.Body)
	must(t, err)

	return reply.StatusCode, strings.TrimSpace(string(data))
}

// HTTP needs no login, so a request only reads: a due item counts as ready once another request has
// brought it back.
func TestHTTPQueues(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		clock := newSteppedClock()
		var refuse atomic.Bool

		writes := hooked{begin: func(context.Context) error {
			if refuse.Load() {
				return kv.ErrUnavailable
			}
			return nil
		}}

		e := testenv.New(t, testenv.Options{
			Engine: engine,
			Wrap:   writes.wrap,
			Bridge: func(o *bridge.Options) {
				o.Now, o.HTTPTimeout = clock.now, testenv.Patience
			},
		})

		is := func(path string, status int, want string) {
			t.Helper()
			got, body := getPage(t, e.Bridge, http.MethodGet, path)
			if got != status || body != want {
				t.Errorf("%s: %d %s, want %d %s", path, got, body, status, want)
			}
		}

		is("/queues", 200, `{"queues":[],"next":null}`)
		is("/queues/pq/jobs", 200, `{"ready":0,"leased":0,"delayed":0,"oldest_age_s":0,"work":0}`)

		for _, kind := range kinds {
			for range 3 {
				push(t, e, kind.push, nil, "a")
				clock.step(time.Second)
			}

			m := e.Request(kind.pop, nil, []byte(`{"ack_wait":"1h"}`))
			acknowledge(t, e, m.Reply, "-NAK 1m")
			e.Request(kind.pop, nil, []byte(`{"ack_wait":"1h"}`))
			path := "/queues/" + strings.Replace(kind.queue, ".", "/", 1)
			is(path, 200, `{"ready":1,"leased":1,"delayed":1,"oldest_age_s":1,"work":2}`)
			refuse.Store(true)
			clock.step(time.Minute) // the delay is over
			is(path, 200, `{"ready":1,"leased":1,"delayed":1,"oldest_age_s":61,"work":2}`)

			short, _, _ := strings.Cut(kind.queue, ".")
			const row = `{"kind":%q,"queue":"jobs","ready":1,"leased":1,"delayed":1,"work":2}`
			is("/queues?limit=1&after="+short+"/job", 200,
				fmt.Sprintf(`{"queues":[`+row+`],"next":null}`, short))

			refuse.Store(false)
			ok(t, e, kind.queue+".len", nil, "")
			is(path, 200, `{"ready":2,"leased":1,"delayed":0,"oldest_age_s":63,"work":3}`)
		}

		pq := `{"kind":"pq","queue":"jobs","ready":2,"leased":1,"delayed":0,"work":3}`
		q := `{"kind":"q","queue":"jobs","ready":2,"leased":1,"delayed":0,"work":3}`
		is("/queues", 200, `{"queues":[`+pq+`,`+q+`],"next":null}`)
		is("/queues?limit=1", 200, `{"queues":[`+pq+`],"next":"pq/jobs"}`)
		is("/queues?after=pq/jobs&limit=1", 200, `{"queues":[`+q+`],"next":null}`)
		is("/queues?after=q/a", 200, `{"queues":[`+q+`],"next":null}`)
		ok(t, e, "q.jobs.purge", nil, "")
		is("/queues?limit=1", 200, `{"queues":[`+pq+`],"next":null}`)

		for path, words := range map[string]string{
			"/queues/pq/a%20b": `bad queue name`,
			"/queues/pq/a.b":   "bad queue name",
			"/queues/pqs/jobs": "want pq or q",

			"/queues/pq/" + strings.Repeat("x", 129): "129 bytes",

			"/queues?limit=0":    "1 to 1000",
			"/queues?limit=1001": "1 to 1000",
			"/queues?limit=x":    "1 to 1000",
			"/queues?after=jobs": "want pq or q",
			"/queues?after=pq/":  "bad queue name",
		} {
			status, body := getPage(t, e.Bridge, http.MethodGet, path)
			says := strings.HasPrefix(body, `{"error":"`) && strings.Contains(body, words)
			if status != 400 || !says {
				t.Errorf("%s: %d %s, want 400 with %q", path, status, body, words)
			}
		}

		for _, path := range []string{"/queues", "/queues/pq/jobs"} {
			status, body := getPage(t, e.Bridge, http.MethodHead, path)
			if status != 200 || body != "" {
				t.Errorf("HEAD %s: %d %s", path, status, body)
			}
			for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
				if status, _ := getPage(t, e.Bridge, method, path); status != 405 {
					t.Errorf("%s %s: %d, want 405", method, path, status)
				}
			}
		}
		if status, _ := getPage(t, e.Bridge, http.MethodGet, "/queues/pq"); status != 404 {
			t.Errorf("GET /queues/pq: %d", status)
		}
	})
}

// A purge of all items takes one transaction. One of a state, and a redrive, end after half of the
// time of a request, and say that there may be more. A later error does not make the outcome
// unknown.
func TestPurgeTakesLong(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		var delay, failing atomic.Int64
		store := hooked{
			commit: func() { <-time.After(time.Duration(delay.Load())) },
			begin: func(context.Context) error {
				if failing.Add(-1) == 0 {
					return kv.ErrUnavailable
				}
				return nil
			},
		}

		e := testenv.New(t, testenv.Options{
			Wrap:   store.wrap,
			Bridge: func(o *bridge.Options) { o.RequestTimeout = time.Second },
		})

		batcher, q := fdbpq.NewBatcher(e.DB, e.Keyspace), jobsOf(t, e)
		fill := func() {
			push := fdbpq.Op{Kind: fdbpq.OpPush, Queue: q}
			for range 3 {
				delay.Store(0)
				_, err := batcher.Apply(t.Context(), slices.Repeat([]fdbpq.Op{push}, 1000))
				must(t, err)
			}

			delay.Store(int64(200 * time.Millisecond))
		}

		fill()
		wantAnswer(t, e, "pq.jobs.purge", "", `{"purged":3000}`)
		fill()
		wantAnswer(t, e, "pq.jobs.purge", `{"state":"ready"}`, `{"purged":1500,"more":true}`)
		failing.Store(2)
		wantAnswer(t, e, "pq.jobs.purge", `{"state":"ready"}`, `{"purged":500,"more":true}`)
		delay.Store(0)
		wantAnswer(t, e, "pq.jobs.purge", `{"state":"ready"}`, `{"purged":1000}`)
	})
}
