package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/process"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// testRig has clients of a bridge, whose queue is returned too.
func testRig(t *testing.T) (*rig, *queue) {
	t.Helper()
	env := testenv.New(t, testenv.Options{})
	r := &rig{url: env.NATS.URL(), conn: env.Conn}
	r.Options = Options{Clients: 7, Connections: 3, Priorities: 2}
	var err error
	if r.conns, err = r.connectAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, nc := range r.opened {
			nc.Close()
		}
	})
	jobs := client.New(env.Conn).PriorityQueue("jobs")
	return r, &queue{PriorityQueue: jobs, rig: r, prefix: "pq.jobs.", value: []byte("item")}
}

func TestLoadCountsSteps(t *testing.T) {
	var seen atomic.Int64
	l := make(actors, 7)
	for i := range l {
		l[i].do = func(context.Context, int) (int, error) {
			seen.Add(1)
			return 1, nil
		}
	}
	for range 2 { // nothing of the first turn may show in the second
		seen.Store(0)
		out, err := runLoad(t.Context(), l, limit{steps: 100})
		if err != nil || out.items != 100 || seen.Load() != 100 || out.dry {
			t.Errorf("%d steps counted, %d seen, dry %v, %v: want 100", out.items, seen.Load(), out.dry, err)
		}
		if out.latency.TotalCount() != 100 || out.elapsed <= 0 || out.rate() <= 0 {
			t.Errorf("latencies of %d steps, elapsed %v", out.latency.TotalCount(), out.elapsed)
		}
	}
	if _, err := runLoad(t.Context(), l, limit{duration: time.Millisecond}); err != nil { // it ends
		t.Error(err)
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("told to stop")
	l[3].do = func(context.Context, int) (int, error) {
		cancel(reason)
		return 1, nil
	}
	if _, err := runLoad(ctx, l, limit{}); !errors.Is(err, reason) {
		t.Errorf("error %v, want %v", err, reason)
	}
}

// Each kind of request gets all items, acknowledges those that are leased, also those that a client
// still has at the end of a turn, and ends with the error of a reply.
func TestRequests(t *testing.T) {
	const items = 200
	r, q := testRig(t)
	for name, l := range map[string]load{
		"single": r.asking(nil, q.subject("pop.min")), "acked": q.leasing(), "chained": q.chaining(),
	} {
		if err := q.fill(t.Context(), items); err != nil {
			t.Fatal(err)
		}
		for _, turn := range []struct {
			steps       int
			items, left int64
		}{{10, 10, items - 10}, {0, items - 10, 0}} {
			out, err := runLoad(t.Context(), l, limit{steps: turn.steps})
			info, unknown := q.Info(t.Context())
			if errors.Join(err, unknown) != nil || out.items != turn.items || out.dry != (turn.left == 0) {
				t.Errorf("%s: %d items of %d, dry %v, %v", name, out.items, turn.items, out.dry, err)
			} else if info.Leased > 0 || info.Ready != turn.left {
				t.Errorf("%s: %d leased, %d ready, want %d", name, info.Leased, info.Ready, turn.left)
			}
		}
	}

	away := nats.Header{"Nats-Service-Error-Code": {"503"}, "Nats-Service-Error": {"the store is away"}}
	for subject, header := range map[string]nats.Header{"bare.>": nil, "away.>": away} {
		_, err := r.conn.Subscribe(subject, func(m *nats.Msg) { _ = m.RespondMsg(&nats.Msg{Header: header}) })
		if err := errors.Join(err, r.conn.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	bare, unavailable := &queue{rig: r, prefix: "bare."}, &queue{rig: r, prefix: "away."}
	for i, c := range []struct {
		l    load
		want string
	}{
		{bare.leasing(), "has no reply subject"}, {bare.chaining(), "has no reply subject"},
		{unavailable.mixed(), "the store is away (503)"}, {unavailable.pushingOnce(), "the store is away (503)"},
		{r.asking(nil, "nobody"), nats.ErrNoResponders.Error()},
	} {
		if _, err := runLoad(t.Context(), c.l, limit{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("load %d: error %v, want words %q", i, err, c.want)
		}
	}

	// A Worker ends with the time of its turn although its queue is empty.
	w := &workers{clients: []int{2}, queues: []*client.PriorityQueue{q.PriorityQueue}}
	if out, err := runLoad(t.Context(), w, limit{duration: time.Millisecond}); err != nil || out.items != 0 {
		t.Errorf("%d items, %v: want none, and no error", out.items, err)
	}
}

func TestReport(t *testing.T) {
	out := newOutcome()
	out.items, out.elapsed, out.dry = 4, time.Second, true
	_ = out.latency.RecordValue(int64(2 * time.Millisecond))
	w := &row{
		name: "pop.min", out: out,
		used: map[string]process.Usage{
			userClient: {Known: true, CPU: 5 * time.Microsecond}, userService: {},
		},
		extra: []Figure{inMillis("restart", 1500*time.Microsecond), times(3, "naive", 2)},
	}
	w.all.Add(process.Machine{All: time.Second}, process.Machine{All: 5 * time.Second, Stolen: time.Second})
	r := newReport(Options{Payload: 128, Clients: 1, Connections: 1, Priorities: 1, Duration: time.Second})
	r.Rows = []Row{{Name: "push"}, w.result(8)}

	var table, lines strings.Builder
	err := errors.Join(r.Write(&table), r.WriteJSON(&lines))
	if err != nil || strings.Count(lines.String(), "\n") != 2 {
		t.Fatal(err, lines.String())
	}
	for _, want := range []string{
		"pop.min*", "2.00", "0.50", "25 %", "1.2", "restart 1.50 ms, of naive 1.50", "ran empty", `"payload":128`,
		`"name":"pop.min","items":4,"rate":4,"ratio":0.5,"p50_us":20`, `"client_us":1.25,"stolen":0.25`,
		`{"name":"restart","value":1.5,"unit":"ms"}`,
	} {
		if !strings.Contains(table.String()+lines.String(), want) {
			t.Errorf("%q is not in\n%s%s", want, table.String(), lines.String())
		}
	}
	for _, without := range []string{"service", "FDB", "queue  "} {
		if strings.Contains(table.String(), without) {
			t.Errorf("a column that is empty, %q, is in the table:\n%s", without, table.String())
		}
	}
}

// Whatever is not in turn is an error, and served to whom is counted.
func TestTurnsOf(t *testing.T) {
	var inTurn, firstComeFirstServed []string
	for range smallGroup {
		inTurn = append(inTurn, largeGroup)
		for i := range manyGroups {
			inTurn = append(inTurn, groupName(i))
		}
		firstComeFirstServed = append(firstComeFirstServed, largeGroup)
	}
	if first, done, err := turnsOf(inTurn); first != 101 || done != 10_100 || err != nil {
		t.Errorf("in turn: %d, %d, %v", first, done, err)
	}

	late := slices.Clone(inTurn)
	late[100], late[101] = late[101], late[100]
	for words, popped := range map[string][]string{
		"10000 items of small groups are left":           firstComeFirstServed,
		"1 items of small groups are left":               append(slices.Clone(inTurn[:10_099]), largeGroup),
		"its first delivery after 102: want at most 101": late,
	} {
		if _, _, err := turnsOf(popped); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("got %v, want %s", err, words)
		}
	}
}

func TestOrder(t *testing.T) {
	for _, test := range []struct {
		popped             []int
		levels, inversions int
	}{
		{[]int{0, 1, 2, 3}, 4, 0},
		{[]int{3, 2, 1, 0}, 1, 6},    // no priorities at all
		{[]int{1, 0, 3, 2}, 2, 2},    // two levels
		{[]int{0, 1, 3, 2, 4}, 4, 1}, // all but two are told apart
		{[]int{1, 2, 3, 0}, 1, 3},    // the first comes last
	} {
		if levels, inversions := order(test.popped); levels != test.levels || inversions != test.inversions {
			t.Errorf("%v: %d levels and %d inversions, want %d and %d", test.popped, levels, inversions, test.levels, test.inversions)
		}
	}
}
