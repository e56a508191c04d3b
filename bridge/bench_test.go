package bridge_test

import (
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

// BenchmarkRequests runs the whole system in one process, clients and NATS included:
// 128 clients over 4 connections, 128 bytes, 10 priorities. Use it with -cpuprofile;
// for comparable figures there is make bench.
func BenchmarkRequests(b *testing.B) {
	const clients, connections = 128, 4
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
			var conns []*nats.Conn
			for range connections {
				conns = append(conns, e.Connect())
			}
			var client, number atomic.Int64
			b.SetParallelism(clients / 2)
			batches, requests := batchesOf(b, e)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				nc := conns[client.Add(1)%connections]
				for pb.Next() {
					subject, data := bench.next(number.Add(1))
					reply, err := nc.Request(subject, data, testenv.Patience)
					if err != nil {
						b.Error(err)
						return
					}
					if err := bridge.ErrorFromHeaders(reply.Header); err != nil && err.(*bridge.Error).Code != 404 {
						b.Error(err)
						return
					}
				}
			})
			b.StopTimer()
			batchesNow, requestsNow := batchesOf(b, e)
			b.ReportMetric((requestsNow-requests)/(batchesNow-batches), "requests/batch")
		})
	}
}

// batchesOf returns how many batches the bridge has done, and how many requests were in
// them.
func batchesOf(b *testing.B, e *testenv.Env) (batches, requests float64) {
	batches, err := metric(e.Bridge, "pq_batch_requests_count")
	if err != nil {
		b.Fatal(err)
	}
	requests, err = metric(e.Bridge, "pq_batch_requests_sum")
	if err != nil {
		b.Fatal(err)
	}
	return batches, requests
}

// fill queues n items behind the bridge's back.
func fill(b *testing.B, e *testenv.Env, n int) {
	q, err := e.Keyspace.PriorityQueue("jobs")
	if err != nil {
		b.Fatal(err)
	}
	batcher := fdbpq.NewBatcher(e.DB, e.Keyspace)
	for n > 0 {
		ops := make([]fdbpq.Op, min(n, 1000))
		for i := range ops {
			ops[i] = fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: int64(i % 10), Message: fdbpq.Message{Value: make([]byte, 128)}}
		}
		if _, err := batcher.Apply(b.Context(), ops); err != nil {
			b.Fatal(err)
		}
		n -= len(ops)
	}
}

// BenchmarkPushBatch pushes batches of 100 items of 128 bytes. It reports the time of an
// item.
func BenchmarkPushBatch(b *testing.B) {
	const clients, connections, items = 32, 4, 100
	var payload []byte
	for i := range items {
		payload = subjects.AppendFrame(payload, subjects.Frame{Priority: int64(i % 10), Value: make([]byte, 128)})
	}
	e := testenv.New(b, testenv.Options{Engine: testenv.Pebble()})
	var conns []*nats.Conn
	for range connections {
		conns = append(conns, e.Connect())
	}
	var client atomic.Int64
	b.SetParallelism(clients / 2)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		nc := conns[client.Add(1)%connections]
		for n := 0; pb.Next(); n++ {
			if n%items != 0 {
				continue // an iteration is one item
			}
			reply, err := nc.Request("pq.jobs.push.batch", payload, testenv.Patience)
			if err == nil {
				err = bridge.ErrorFromHeaders(reply.Header)
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkAcks leases and acknowledges items as BenchmarkRequests pushes them: each lease
// followed by an acknowledgement, and acknowledgements that each ask for another item.
func BenchmarkAcks(b *testing.B) {
	const clients, connections = 128, 4
	options := subjects.PopOptions{Lease: true, AckWait: time.Minute}.Encode()
	for _, name := range []string{"ack", "next"} {
		b.Run(name, func(b *testing.B) {
			e := testenv.New(b, testenv.Options{Engine: testenv.Pebble()})
			fill(b, e, b.N+clients)
			var conns []*nats.Conn
			for range connections {
				conns = append(conns, e.Connect())
			}
			var client atomic.Int64
			b.SetParallelism(clients / 2)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				nc := conns[client.Add(1)%connections]
				request := func(subject string, data []byte) string {
					reply, err := nc.Request(subject, data, testenv.Patience)
					if err == nil {
						err = bridge.ErrorFromHeaders(reply.Header)
					}
					if err != nil {
						b.Error(err)
						return ""
					}
					return reply.Reply
				}
				token := ""
				for pb.Next() && !b.Failed() {
					if token == "" {
						token = request("pq.jobs.pop.min", options)
					}
					if name == "ack" {
						request(token, nil)
						token = ""
					} else {
						token = request(token, []byte("+NXT"))
					}
				}
			})
		})
	}
}
