package bridge_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// tokenOf returns the last token of the subject of an acknowledgement.
func tokenOf(ack string) string { return ack[strings.LastIndexByte(ack, '.')+1:] }

// also returns a payload that names further leases, given by the subjects of their acknowledgements.
func also(verb string, acks []string, options ...string) string {
	tokens := make([]string, len(acks))
	for i, ack := range acks {
		tokens[i] = tokenOf(ack)
	}
	list, _ := json.Marshal(tokens)
	return fmt.Sprintf(`%s {"also":%s%s}`, verb, list, strings.Join(append([]string{""}, options...), ","))
}

// leasedMany pushes items and leases them.
func leasedMany(t *testing.T, e *testenv.Env, queue string, n int) (acks []string) {
	t.Helper()
	for i := range n {
		push(t, e, "pq."+queue+".push", nil, fmt.Sprint("leased ", i))
	}
	replies := ask(t, e.Conn, "pq."+queue+".pop.min", fmt.Sprintf(`{"ack_wait":"1h","batch":%d}`, max(n, 2)))
	for i := range n {
		acks = append(acks, got(t, replies, fmt.Sprint("leased ", i)).Reply)
	}
	ended(t, replies, n, "")
	return acks
}

// One request acknowledges several leases, or none of them, and leases the next.
func TestAckSeveral(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		acks := leasedMany(t, e, "jobs", 8)
		acked(t, e, acks[0], also("+ACK", acks[1:3]))
		lost := e.Request(acks[3], nil, []byte(also("+NXT", []string{acks[4], acks[0], acks[5], acks[2]})))
		err := isError(t, 409, acks[3], lost)
		if got := lost.Header.Get(subjects.HeaderLost); got != "2,4" || !strings.Contains(err.Text, "2 of 5 leases, the first is number 2") {
			t.Errorf("lost are %s: %v", got, err)
		}
		push(t, e, "pq.jobs.push", nil, "next")
		m := acked(t, e, acks[3], also("+NXT", acks[4:6]))
		if string(m.Data) != "next" {
			t.Errorf("the next is %q", m.Data)
		}
		replies := ask(t, e.Conn, m.Reply, also("+NXT", []string{acks[6]}, `"batch":3`, `"expires":"1h"`))
		waiters(t, e.Bridge, "jobs", 1)
		isError(t, 409, acks[6], e.Request(acks[6], nil, nil)) // it counts before it waits
		// Others that come while one waits count at once as well.
		second := ask(t, e.Conn, acks[7], also("+NXT", nil, `"batch":2`, `"expires":"1h"`))
		waiters(t, e.Bridge, "jobs", 2)
		var more []string
		for i := range 5 {
			push(t, e, "pq.jobs.push", nil, fmt.Sprint("more ", i))
		}
		for i := range 3 {
			more = append(more, got(t, replies, fmt.Sprint("more ", i)).Reply)
		}
		ended(t, replies, 3, "")
		for i := range 2 {
			more = append(more, got(t, second, fmt.Sprint("more ", 3+i)).Reply)
		}
		ended(t, second, 2, "")
		first := asked(t, e, "jobs", "pop.min", `{"expires":"1h","ack_wait":"1h"}`)
		third := ask(t, e.Conn, more[0], also("+NXT", more[1:4], `"batch":2`, `"expires":"1h"`))
		waiters(t, e.Bridge, "jobs", 2)
		isError(t, 409, more[3], e.Request(more[3], nil, nil))
		ended(t, ask(t, e.Conn, more[4], also("+NXT", more[:1], `"batch":2`, `"expires":"1h"`)), 0, "409")
		for i := range 3 {
			push(t, e, "pq.jobs.push", nil, fmt.Sprint("last ", i))
		}
		got(t, first, "last 0")
		got(t, third, "last 1")
		got(t, third, "last 2")
		ended(t, third, 2, "")
		// Published, it only acknowledges.
		publish(t, e, more[4], "", also("+NXT", nil))
		comes(t, "the end of the lease", func() bool { return bridge.ErrorFromHeaders(e.Request(more[4], nil, []byte("+WPI")).Header) != nil })
		if info := e.Request("pq.jobs.info", nil, nil); !strings.Contains(string(info.Data), `"leased":3`) {
			t.Errorf("left: %s", info.Data)
		}
	})
}

// A request may acknowledge 1,000 leases and lease as many.
func TestAckVeryMany(t *testing.T) {
	e := testenv.New(t, testenv.Options{Bridge: func(o *bridge.Options) { o.MaxBatch = 10 }})
	push := func(n int) {
		payload := frames(slices.Repeat([]subjects.Frame{frame(1, "", "x")}, n)...)
		must(t, bridge.ErrorFromHeaders(e.Request("pq.jobs.push.batch", nil, []byte(payload)).Header))
	}
	push(2000)
	receive := func(subject, options string) (acks []string) {
		replies := ask(t, e.Conn, subject, options)
		for range 1000 {
			acks = append(acks, next(t, replies).Reply)
		}
		ended(t, replies, 1000, "")
		return acks
	}
	acks := receive("pq.jobs.pop.min", `{"ack_wait":"1h","batch":1000}`)
	acks = receive(acks[0], also("+NXT", acks[1:], `"batch":1000`))
	isError(t, 400, acks[0], e.Request(acks[0], nil, []byte(also("+ACK", append(acks[1:], acks[0])))))
	acked(t, e, acks[0], also("+ACK", acks[1:]))
	if info := e.Request("pq.jobs.info", nil, nil); !strings.Contains(string(info.Data), `"ready":0,"leased":0`) {
		t.Errorf("left: %s", info.Data)
	}
}

// What is wrong with the further leases is refused, and changes nothing.
func TestBadAlso(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	acks := leasedMany(t, e, "jobs", 3)
	none := fdbpq.Token{Fence: 7}.String()
	for payload, words := range map[string]string{
		also("+ACK", acks[:1]):                                 "element 0 is the token of the subject: want other leases",
		also("+NXT", []string{acks[1], none, acks[1]}):         "elements 0 and 2 are the same token",
		also("+ACK", []string{acks[1], "x.-"}):                 "also: element 1: ",
		`+NXT {"also":["` + acks[1] + `"]}`:                    "want one as a leased item came with it",
		`+ACK {"also":"` + tokenOf(acks[1]) + `"}`:             "want an array of texts",
		`+ACK {"also":["` + tokenOf(acks[1]) + `"],"batch":2}`: "unknown member",
		`-NAK {"also":["` + tokenOf(acks[1]) + `"]}`:           "unknown member",
	} {
		if err := isError(t, 400, acks[0], e.Request(acks[0], nil, []byte(payload))); !strings.Contains(err.Text, words) {
			t.Errorf("%s: %v: want %q", payload, err, words)
		}
	}
	// Tokens of another queue are lost here.
	m := e.Request(strings.Replace(acks[0], "pq.jobs.", "pq.other.", 1), nil, []byte(also("+ACK", acks[1:])))
	isError(t, 409, acks[0], m)
	same(t, "lost", m.Header.Get(subjects.HeaderLost), "0,1,2")
	acked(t, e, acks[0], also("+ACK", acks[1:]))
}

// Whichever bridge gets it, an acknowledgement of several leases that wants the next ones runs once.
func TestAckSeveralIsForwarded(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		queues, replies := waitOn(t, e, second, e.Bridge, 1, `{"expires":"1h"}`)
		push(t, e, "pq."+queues[0]+".push", nil, "first")
		got(t, replies[0], "first")
		before := count(t, e.Bridge, "pq_passed_total")
		acks := leasedMany(t, e, queues[0], 3)
		push(t, e, "pq."+queues[0]+".push", nil, "next")
		wantData(t, acked(t, e, acks[0], also("+NXT", acks[1:])), "next")
		m := e.Request(acks[0], nil, []byte(also("+NXT", acks[1:])))
		isError(t, 409, acks[0], m)
		same(t, "lost", m.Header.Get(subjects.HeaderLost), "0,1,2")
		wantMetric(t, e.Bridge, "pq_passed_total", before+3)
	})
}
