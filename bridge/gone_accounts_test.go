package bridge_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/race"
)

// vanishing is a client whose receivers are often gone when their items come. What its
// connection gets, it has received.
type vanishing struct {
	*rawConn
	client   uint64
	random   *rand.Rand
	sent     int
	received []string
}

func newVanishing(t *testing.T, e *testenv.Env, seed, client uint64) *vanishing {
	return &vanishing{rawConn: dialRaw(t, e), client: client, random: rand.New(rand.NewPCG(seed, client))}
}

// pop sends a pop, with a receiver that is there, was there, or never was.
func (v *vanishing) pop() {
	v.t.Helper()
	v.sent++
	inbox, sid := v.inbox(), strconv.Itoa(v.sent+1)
	sub, pop := fmt.Sprintf("SUB %s %s\r\n", inbox, sid), message("pq.jobs.pop.min", inbox, "", "")
	switch v.random.IntN(6) {
	case 0:
		v.write(sub + pop)
	case 1:
		v.write(sub + pop + "UNSUB " + sid + "\r\n") // while the pop runs
	case 2:
		v.write(sub)
		v.write(pop)
		v.write("UNSUB " + sid + "\r\n")
	case 3:
		options := []string{`{"batch":4}`, `{"batch":4,"frames":true}`}[v.random.IntN(2)]
		v.write(sub + "UNSUB " + sid + fmt.Sprintf(" %d\r\n", 1+v.random.IntN(2)) + message("pq.jobs.pop.min", inbox, "", options))
	case 4:
		v.write(message("pq.jobs.pop.min", inbox, "", `{"batch":4,"frames":true}`))
	default:
		v.write(pop)
	}
}

// inbox is of a client's own, and not what dialRaw subscribes to.
func (v *vanishing) inbox() string {
	return fmt.Sprintf("gone.%d.%d", v.client, v.sent)
}

// collect receives everything that was sent to this client until now.
func (v *vanishing) collect() {
	v.t.Helper()
	v.replies++
	end := "raw." + strconv.Itoa(v.replies)
	v.write(message("pq.jobs.len", end, "", "")) // is answered after the pops
	for m := v.next(); m.subject != end; m = v.next() {
		if m.payload == "" { // it is the end of several, or an error
			continue
		}
		t := v.t.(*testing.T)
		for _, item := range unpacked(t, "pq.jobs", &nats.Msg{Header: decoded(t, m.headers), Data: []byte(m.payload)}) {
			v.received = append(v.received, item.value)
		}
	}
}

// Of 10,000 pops by clients that vanish, every item was either received or is back, and
// none comes twice. Where whole connections vanish, some items are lost in them.
func TestGoneAccounts(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	e := testenv.New(t, testenv.Options{})
	const clients = 10
	items, pops := race.Times(20_000, 5_000), race.Times(10_000, 3_000)
	for i := range items {
		if publish(t, e, "pq.jobs.push", "", fmt.Sprint(i)); i%1000 == 0 {
			ok(t, e, "pq.jobs.len", nil, "") // the bridge refuses too many at once
		}
	}
	wantQueued(t, e, int64(items))
	seen := map[string]int{}
	for n := range uint64(clients) {
		v := newVanishing(t, e, seed, n)
		for i := range pops / clients {
			if v.pop(); i%100 == 99 {
				v.collect()
			}
		}
		// Pops for which a batch has no room are run with the next one, and requests behind them may come first.
		wantMetric(t, e.Bridge, "pq_pending_requests", 0)
		v.collect()
		for _, value := range v.received {
			seen[value]++
		}
	}
	received := len(seen)
	wantQueued(t, e, int64(items-received)) // nothing is lost so far
	for n := range uint64(100) {
		v := newVanishing(t, e, seed, clients+n)
		for range 5 {
			v.pop()
		}
		must(t, v.Close())
	}
	back := count(t, e.Bridge, noResponders)
	restart(t, e) // what is to come back is back then
	left := popAll(t, e, "pq.jobs.pop.min")
	for i, value := range left {
		seen[value]++
		if this, next := atoi(t, value), 0; i+1 < len(left) {
			if next = atoi(t, left[i+1]); this >= next {
				t.Errorf("%d comes before %d", this, next)
			}
		}
	}
	for value, times := range seen {
		if times != 1 {
			t.Errorf("%q came %d times", value, times)
		}
	}
	t.Logf("of %d items %d were received, %d are left, %d were lost in connections; items came back %v times", items, received, len(left), items-len(seen), back)
}

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

// While large items are popped again and again for clients that are gone, other queues of the lane are served.
// No item is lost.
func TestFloodOfPopsForNobody(t *testing.T) {
	const items, size = 30, 1_000_000
	pops := race.Times(150, 50)
	e := testenv.New(t, testenv.Options{Engine: testenv.Pebble(), Bridge: func(o *bridge.Options) {
		o.Lanes = 1
		o.RequestTimeout = testenv.Patience // the machine may be slow
	}})
	value := make([]byte, size)
	for i := range items {
		push(t, e, fmt.Sprintf("pq.large.push.%d", i), nil, string(value))
	}

	flood := e.Connect()
	for range pops {
		must(t, flood.PublishRequest("pq.large.pop.min", nats.NewInbox(), nil))
	}
	must(t, flood.Flush())
	began := time.Now()
	b := startBystander(t, e)
	var took time.Duration
	testenv.Eventually(t, func() error {
		pending, err := metric(e.Bridge, `pq_requests_total{operation="pop-min"}`)
		back, backErr := metric(e.Bridge, noResponders)
		if err = errors.Join(err, backErr); err == nil && back < float64(pops) {
			err = fmt.Errorf("%v of %d items are back, %v pops", back, pops, pending)
		}
		took = time.Since(began)
		return err
	})
	b.end(fmt.Sprintf("%d pops for nobody in %v", pops, took), true)

	// Behind the flood, a request would take as long as all of it.
	if longest := b.took[len(b.took)-1]; longest > took/2 || b.refused > 0 {
		t.Errorf("a request of another queue took %v of %v, %d were refused", longest, took, b.refused)
	}
	wantMetric(t, e.Bridge, "pq_lost_items_total", 0)
	if got, want := string(e.Request("pq.large.len", nil, nil).Data), fmt.Sprintf(`{"queue":"large","len":%d}`, items); got != want {
		t.Errorf("in the end: %s, want %s", got, want)
	}
}
