package bridge_test

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv"
)

func TestMetricsOfLeases(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	begun := time.Now()
	for _, value := range []string{"a", "b", "c"} {
		push(t, e, "pq.jobs.push", nil, value)
		push(t, e, "q.jobs.enqueue", nil, value)
	}
	pushed := time.Now()
	ack := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "a")
	e.Request(ack, nil, []byte("-NAK"))
	leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "a")
	delayed := leased(t, e, "pq.jobs.pop.max", `{"ack_wait":"1h"}`, "c")
	e.Request(delayed, nil, []byte("-NAK 1h"))
	least := time.Since(pushed)

	wantMetric(t, e.Bridge, "pq_deliveries_total", 3)
	wantMetric(t, e.Bridge, "pq_redeliveries_total", 1)
	for name, want := range map[string][2]float64{"length": {1, 3}, "leased": {1, 0}, "delayed": {1, 0}} {
		wantMetric(t, e.Bridge, `pq_queue_`+name+`{kind="priority",queue="jobs"}`, want[0])
		wantMetric(t, e.Bridge, `pq_queue_`+name+`{kind="fifo",queue="jobs"}`, want[1])
	}
	age, err := metric(e.Bridge, `pq_queue_oldest_seconds{kind="priority",queue="jobs"}`)
	if most := time.Since(begun); err != nil || age < least.Seconds() || age > most.Seconds() {
		t.Errorf("the oldest item is %v s old, %v: want %v to %v", age, err, least, most)
	}

	leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "b")
	wantMetric(t, e.Bridge, `pq_queue_oldest_seconds{kind="priority",queue="jobs"}`, 0)

	wantMetric(t, e.Bridge, `pq_request_items_count{operation="dequeue"}`, 0)
	if err := e.Conn.PublishRequest("q.jobs.dequeue", e.Conn.NewRespInbox(), []byte(`{"batch":3}`)); err != nil {
		t.Fatal(err)
	}
	wantMetric(t, e.Bridge, `pq_request_items_count{operation="dequeue"}`, 1)
	wantMetric(t, e.Bridge, `pq_request_items_sum{operation="dequeue"}`, 3)
}
