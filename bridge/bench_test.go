package bridge_test

import (
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// parallel runs clients that share four connections. Each calls client with a function that makes a request, which may
// find the queue empty.
func parallel(b *testing.B, e *testenv.Env, clients int, client func(pb *testing.PB, request func(subject string, data []byte) *nats.Msg)) {
	var conns []*nats.Conn
	for range 4 {
		conns = append(conns, e.Connect())
	}
	var number atomic.Int64
	b.SetParallelism(clients / 2)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		nc := conns[number.Add(1)%int64(len(conns))]
		client(pb, func(subject string, data []byte) *nats.Msg {
			reply, err := nc.Request(subject, data, testenv.Patience)
			if err != nil {
				b.Error(err)
				return &nats.Msg{}
			}
			if err := bridge.ErrorFromHeaders(reply.Header); err != nil && err.(*bridge.Error).Code != 404 {
				b.Error(err)
			}
			return reply
		})
	})
	b.StopTimer()
}

// BenchmarkRequests runs the whole system in one process, clients and NATS included:
// 128 clients over 4 connections, 128 bytes, 10 priorities. Use it with -cpuprofile;
// for comparable figures there is make bench.
func BenchmarkRequests(b *testing.B) {
	payload := make([]byte, 128)
	push := func(i int64) (string, []byte) { return "pq.jobs.push." + strconv.Itoa(int(i%10)), payload }
	pop := func(int64) (string, []byte) { return "pq.jobs.pop.min", nil }
	mixed := func(i int64) (string, []byte) {
		if i%2 == 0 {
			return push(i / 2)
		}
		return pop(i)
	}
	for _, bench := range []struct {
		name   string
		filled bool
		next   func(i int64) (string, []byte)
	}{{"push", false, push}, {"pop", true, pop}, {"mixed", false, mixed}} {
		b.Run(bench.name, func(b *testing.B) {
			e := testenv.New(b, testenv.Options{Engine: testenv.Pebble()})
			if bench.filled {
				fill(b, e, b.N)
			}
			var number atomic.Int64
			const batches, requests = "pq_batch_requests_count", "pq_batch_requests_sum"
			batchesBefore, requestsBefore := count(b, e.Bridge, batches), count(b, e.Bridge, requests)
			parallel(b, e, 128, func(pb *testing.PB, request func(string, []byte) *nats.Msg) {
				for pb.Next() && !b.Failed() {
					request(bench.next(number.Add(1)))
				}
			})
			n := count(b, e.Bridge, requests) - requestsBefore
			b.ReportMetric(n/(count(b, e.Bridge, batches)-batchesBefore), "requests/batch")
		})
	}
}

// fill queues n items behind the bridge's back.
func fill(b *testing.B, e *testenv.Env, n int) {
	push := fdbpq.Op{Kind: fdbpq.OpPush, Queue: jobsOf(b, e), Message: fdbpq.Message{Value: make([]byte, 128)}}
	batcher := fdbpq.NewBatcher(e.DB, e.Keyspace)
	for n > 0 {
		ops := slices.Repeat([]fdbpq.Op{push}, min(n, 1000))
		for i := range ops {
			ops[i].Priority = int64(i % 10)
		}
		_, err := batcher.Apply(b.Context(), ops)
		must(b, err)
		n -= len(ops)
	}
}

// BenchmarkPushBatch pushes batches of 100 items of 128 bytes. It reports the time of an
// item.
func BenchmarkPushBatch(b *testing.B) {
	const items = 100
	var payload []byte
	for i := range items {
		payload = subjects.AppendFrame(payload, subjects.Frame{Priority: int64(i % 10), Value: make([]byte, 128)})
	}
	e := testenv.New(b, testenv.Options{Engine: testenv.Pebble()})
	parallel(b, e, 32, func(pb *testing.PB, request func(string, []byte) *nats.Msg) {
		for n := 0; pb.Next() && !b.Failed(); n++ {
			if n%items == 0 { // an iteration is one item
				request("pq.jobs.push.batch", payload)
			}
		}
	})
}

// BenchmarkAcks leases and acknowledges items as BenchmarkRequests pushes them: each lease
// followed by an acknowledgement, and acknowledgements that each ask for another item.
func BenchmarkAcks(b *testing.B) {
	const clients = 128
	options := subjects.PopOptions{Lease: true, AckWait: time.Minute}.Encode()
	for _, name := range []string{"ack", "next"} {
		b.Run(name, func(b *testing.B) {
			e := testenv.New(b, testenv.Options{Engine: testenv.Pebble()})
			fill(b, e, b.N+clients)
			parallel(b, e, clients, func(pb *testing.PB, request func(string, []byte) *nats.Msg) {
				token := ""
				for pb.Next() && !b.Failed() {
					if token == "" {
						token = request("pq.jobs.pop.min", options).Reply
					}
					if name == "ack" {
						request(token, nil)
						token = ""
					} else {
						token = request(token, []byte("+NXT")).Reply
					}
				}
			})
		})
	}
}
