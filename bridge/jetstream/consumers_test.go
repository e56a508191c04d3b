package jetstream

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// create returns the payload of a request to create a consumer of jobs.
func create(config string) string { return `{"stream_name":"jobs","config":` + config + `}` }

// Each queue has min and max, and a FIFO queue min alone. They can be created as they are.
func TestBuiltinConsumers(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "a", "b")
	s.configure("jobs", func(set *fdbpq.Settings) { set.AckWait = 45 * time.Second })
	r := s.succeeds("pq.API.CONSUMER.INFO.jobs.max", "")
	for name, want := range map[string]string{
		"durable_name": `"max"`, "ack_policy": `"explicit"`, "ack_wait": "45000000000", "max_ack_pending": "100", "metadata": `{"pq.order":"max"}`,
	} {
		same(t, name, member(t, r.Config, name), want)
	}
	same(t, "names", fmt.Sprint(s.succeeds("pq.API.CONSUMER.NAMES.jobs", "").Consumers), "[max min]")
	same(t, "names", fmt.Sprint(s.succeeds("q.API.CONSUMER.NAMES.jobs", "").Consumers), "[min]")
	s.fails("q.API.CONSUMER.INFO.jobs.max", "", errNoConsumer, "not found")

	for _, config := range []string{
		`{"durable_name":"max","ack_policy":"explicit"}`,
		`{"durable_name":"max","ack_policy":"explicit","ack_wait":45000000000,"max_ack_pending":100,"filter_subject":"pq.jobs.push","metadata":{"pq.order":"max"}}`,
		`{"name":"max","max_deliver":-1,"inactive_threshold":1000000000}`,
		`{"name":"max","pause_until":"0001-01-01T00:00:00Z"}`, // from the nats tool
		string(r.Config),
	} {
		s.succeeds("pq.API.CONSUMER.CREATE.jobs.max", create(config))
	}
	for config, part := range map[string]string{
		`{"durable_name":"max","max_ack_pending":5}`:              "max_ack_pending",
		`{"durable_name":"max","ack_wait":1000000000}`:            "ack_wait",
		`{"durable_name":"max","metadata":{"pq.order":"min"}}`:    "metadata",
		`{"durable_name":"max","description":"another"}`:          "description",
		`{"durable_name":"max","max_deliver":3,"max_waiting":10}`: "max_deliver",
	} {
		s.fails("pq.API.CONSUMER.CREATE.jobs.max", create(config), 10013, part)
	}
	s.fails("pq.API.CONSUMER.DELETE.jobs.max", "", errBadRequest, "each queue has")
}

// A consumer is created in three forms, changed, listed and deleted, and is in the store.
func TestConsumers(t *testing.T) {
	s := newSystem(t)
	r := s.succeeds("pq.API.CONSUMER.CREATE.jobs.w", create(`{"durable_name":"w","ack_policy":"explicit","ack_wait":5000000000,"max_deliver":3,"metadata":{"pq.order":"max","team":"a"}}`))
	same(t, "type", r.Type, "io.nats.jetstream.api.v1.consumer_create_response")
	same(t, "name", r.Name, "w")
	s.succeeds("pq.API.CONSUMER.CREATE.jobs.z", create(`{"durable_name":"z","pause_until":"0001-01-01T00:00:00Z"}`))
	s.succeeds("pq.API.CONSUMER.DELETE.jobs.z", "")
	for name, want := range map[string]string{"max_ack_pending": "1000", "max_waiting": "512", "max_deliver": "3", "metadata": `{"pq.order":"max","team":"a"}`} {
		same(t, name, member(t, r.Config, name), want)
	}
	s.succeeds("pq.API.CONSUMER.CREATE.jobs.f.pq.jobs.push", create(`{"durable_name":"f","filter_subject":"pq.jobs.push"}`))
	s.succeeds("pq.API.CONSUMER.DURABLE.CREATE.jobs.d", create(`{"durable_name":"d","priority_policy":"none","num_replicas":1}`))
	unnamed := s.succeeds("pq.API.CONSUMER.CREATE.jobs", create(`{}`)).Name

	names := fmt.Sprint(s.succeeds("pq.API.CONSUMER.NAMES.jobs", "").Consumers)
	for _, name := range []string{"w", "f", "d", unnamed, "min", "max"} {
		if !strings.Contains(names, name) || name == "" {
			t.Errorf("%s is not in %s", name, names)
		}
	}
	r = s.succeeds("pq.API.CONSUMER.LIST.jobs", `{"offset":4}`)
	same(t, "listed from an offset", length(r.Consumers), 2)
	same(t, "total", r.Total, 6)
	same(t, "streams that have something", length(s.succeeds("pq.API.STREAM.NAMES", "").Streams), 1)

	// Another bridge with the same store knows them as well.
	c, err := s.consumerOf(context.Background(), stream{subjects.Priority, "jobs"}, "w")
	must(t, err)
	same(t, "end", c.end, fdbpq.Back)
	same(t, "max_deliver", c.config.MaxDeliver, 3)

	changed := create(`{"durable_name":"w","max_deliver":4}`)
	s.fails("pq.API.CONSUMER.CREATE.jobs.w", strings.Replace(changed, "{", `{"action":"create",`, 1), 10148, "already exists")
	s.fails("pq.API.CONSUMER.CREATE.jobs.v", strings.Replace(strings.Replace(changed, `"w"`, `"v"`, 1), "{", `{"action":"update",`, 1), 10149, "does not exist")
	s.fails("pq.API.CONSUMER.CREATE.jobs.w", strings.Replace(changed, "{", `{"action":"drop",`, 1), errJSON, "action")
	same(t, "max_deliver", member(t, s.succeeds("pq.API.CONSUMER.INFO.jobs.w", "").Config, "max_deliver"), "3")
	s.succeeds("pq.API.CONSUMER.CREATE.jobs.w", strings.Replace(changed, "{", `{"action":"update",`, 1))
	s.succeeds("pq.API.CONSUMER.CREATE.jobs.w", strings.Replace(changed, "{", `{"action":"create",`, 1))
	c, err = s.consumerOf(context.Background(), stream{subjects.Priority, "jobs"}, "w")
	must(t, err)
	same(t, "max_deliver at once", c.config.MaxDeliver, 4)

	same(t, "deleted", s.succeeds("pq.API.CONSUMER.DELETE.jobs.w", "").Success, true)
	s.fails("pq.API.CONSUMER.INFO.jobs.w", "", errNoConsumer, "not found")
	c, err = s.consumerOf(context.Background(), stream{subjects.Priority, "jobs"}, "w")
	must(t, err)
	if c != nil {
		t.Error("a deleted consumer is still known")
	}
}

// What TestConformance cannot compare: a FIFO queue has one end, and nothing that is refused is stored.
func TestWrongConsumers(t *testing.T) {
	s := newSystem(t)
	s.fails("q.API.CONSUMER.CREATE.jobs.w", create(`{"metadata":{"pq.order":"max"}}`), errConfig, "max for a priority queue")
	s.fails("pq.API.CONSUMER.CREATE.jobs.w", create(`{"metadata":{"pq.other":"min"}}`), errConfig, "pq.order")
	s.fails("pq.API.CONSUMER.CREATE.jobs.w", create(`{"filter_subject":"orders"}`), 10093, "want pq.jobs.push")
	s.fails("pq.API.CONSUMER.CREATE.jobs."+strings.Repeat("w", 10_000), create(`{}`), 10102, "128")
	same(t, "consumers", s.succeeds("pq.API.CONSUMER.NAMES.jobs", "").Total, 2)
}

// A queue has at most so many consumers of its own. Those that nobody uses make room for others.
func TestMaxConsumers(t *testing.T) {
	s := newSystem(t)
	for i := range fdbpq.MaxConsumers {
		s.succeeds(fmt.Sprintf("pq.API.CONSUMER.CREATE.jobs.w%d", i), create(`{}`))
	}
	s.fails("pq.API.CONSUMER.CREATE.jobs.more", create(`{}`), 10026, "maximum consumers limit reached")
	s.succeeds("pq.API.CONSUMER.CREATE.jobs.w7", create(`{"max_deliver":2}`))
	same(t, "consumers", length(s.succeeds("pq.API.CONSUMER.LIST.jobs", "").Consumers), maxConsumers)
	s.clock.advance(minThreshold + time.Second)
	s.succeeds("pq.API.CONSUMER.CREATE.jobs.more", create(`{}`))
}

// A consumer without a durable name goes when nobody has used it for long enough.
func TestInactiveConsumers(t *testing.T) {
	s := newSystem(t)
	jobs := stream{subjects.Priority, "jobs"}
	find := func() *consumer {
		t.Helper()
		c, err := s.consumerOf(context.Background(), jobs, "w")
		must(t, err)
		return c
	}

	s.succeeds("pq.API.CONSUMER.CREATE.jobs.w", create(`{}`))
	for range 5 {
		s.clock.advance(minThreshold / 2)
		c := find()
		if c == nil {
			t.Fatal("a consumer that is used has gone")
		}
		s.touch(c, s.clock.now().Add(time.Second))
		s.touch(c, s.clock.now().Add(time.Second))
		s.running.Wait()
	}
	written := find().noted.Load()
	s.touch(find(), s.clock.now().Add(2*time.Second))
	s.running.Wait()
	same(t, "the use that is noted", find().noted.Load(), written)

	s.clock.advance(minThreshold + 2*time.Second)
	if find() != nil {
		t.Error("an unused consumer is still there")
	}
	s.running.Wait()
	same(t, "records", len(s.do(jobs.kind, jobs.name, fdbpq.Op{Kind: fdbpq.OpConsumers})[0].Records), 0)
	s.fails("pq.API.CONSUMER.CREATE.jobs.w", strings.Replace(create(`{}`), "{", `{"action":"update",`, 1), 10149, "does not exist")
	s.succeeds("pq.API.CONSUMER.CREATE.jobs.w", strings.Replace(create(`{"max_deliver":7}`), "{", `{"action":"create",`, 1))
}

// Pulls that do not wait count as use of their consumer.
func TestPullsThatDoNotWaitUseTheirConsumer(t *testing.T) {
	synctest.Test(t, testPullsThatDoNotWaitUseTheirConsumer)
}

func testPullsThatDoNotWaitUseTheirConsumer(t *testing.T) {
	s := newSystem(t)
	s.succeeds("pq.API.CONSUMER.CREATE.jobs.w", create(`{}`))
	for range 5 {
		s.clock.advance(minThreshold / 2)
		s.cache.drop(stream{subjects.Priority, "jobs"})
		s.receive(&leaf.Message{Subject: "$JS.pq.API.CONSUMER.MSG.NEXT.jobs.w", Reply: "_INBOX.x", Payload: []byte(`{"no_wait":true}`)})
		s.nextStatus("404 No Messages")
		s.running.Wait()
	}
}

// A queue that is paused pauses its consumers, which CONSUMER.INFO says.
func TestPausedConsumers(t *testing.T) {
	s := newSystem(t)
	s.configure("jobs", func(set *fdbpq.Settings) { set.PauseUntil = s.clock.now().Add(time.Hour) })
	if text := string(s.succeeds("pq.API.CONSUMER.INFO.jobs.min", "").text); !strings.Contains(text, `"paused":true,"pause_remaining":3`) {
		t.Errorf("got %s", text)
	}
}

// A pull for a consumer that does not exist gets what NATS says if nobody listens.
func TestPullOfNobody(t *testing.T) {
	s := newSystem(t)
	for _, subject := range []string{"jobs.nobody", "jobs", "a b.min", "jobs.min.more"} {
		s.receive(&leaf.Message{Subject: "$JS.pq.API.CONSUMER.MSG.NEXT." + subject, Reply: "_INBOX.pull", Payload: []byte("1")})
		same(t, "status for "+subject, string(s.sent().Header), "NATS/1.0 503\r\n\r\n")
	}
}

// A consumer that another bridge creates is there for the next pull, even if the pull before missed it.
func TestConsumerOfAnotherBridge(t *testing.T) { synctest.Test(t, testConsumerOfAnotherBridge) }

func testConsumerOfAnotherBridge(t *testing.T) {
	s := newSystem(t)
	other, err := newFace(s.config)
	must(t, err)
	other.out = s.sender
	t.Cleanup(func() { other.tasks.end(context.Background()) })
	pull := func() string {
		t.Helper()
		other.receive(&leaf.Message{Subject: "$JS.pq.API.CONSUMER.MSG.NEXT.jobs.w", Reply: "_INBOX.pull", Payload: []byte(`{"batch":1,"no_wait":true}`)})
		return string(s.sent().Header)
	}

	same(t, "before", pull(), "NATS/1.0 503\r\n\r\n")
	s.succeeds("pq.API.CONSUMER.CREATE.jobs.w", create(`{"durable_name":"w"}`))
	same(t, "at once", pull(), "NATS/1.0 404 No Messages\r\n\r\n")
	if other.cache.streams[stream{name: "jobs"}].byName["w"] == nil {
		t.Error("it is not cached")
	}

	// A read that began before a change is not kept.
	began := time.Now()
	other.cache.drop(stream{name: "jobs"})
	other.cache.keep(stream{name: "jobs"}, cachedConsumers{began, map[string]*consumer{"w": {}}})
	if other.cache.streams[stream{name: "jobs"}].byName != nil {
		t.Error("what may be older than a change is cached")
	}
}

// A change of a consumer, here or at another bridge, counts for the pulls that wait.
func TestChangeReachesPulls(t *testing.T) {
	s := newSystem(t)
	pull := func() {
		s.receive(&leaf.Message{Subject: "$JS.pq.API.CONSUMER.MSG.NEXT.jobs.w", Reply: "_INBOX.pull", Payload: []byte(hour)})
	}
	waits := func(delivered int) { // a pull, once those before are through
		t.Helper()
		s.settles(counts{Delivered: uint64(delivered), AckPending: delivered})
		pull()
		s.settles(counts{Delivered: uint64(delivered), AckPending: delivered, Waiting: 1})
	}
	s.succeeds("pq.API.CONSUMER.CREATE.jobs.w", create(`{"durable_name":"w","max_ack_pending":1}`))
	s.push("jobs", "a", "b", "c")
	pull()
	s.nextItem("a")
	waits(1)
	change := create(`{"durable_name":"w","max_ack_pending":2}`)
	s.receive(&leaf.Message{Subject: "$JS.pq.API.CONSUMER.CREATE.jobs.w", Payload: []byte(change)})
	s.nextItem("b")

	waits(2)
	other, err := newFace(s.config)
	must(t, err)
	t.Cleanup(func() { other.tasks.end(context.Background()) })
	must(t, other.setRecord(context.Background(), stream{name: "jobs"}, &jetstream.ConsumerConfig{Name: "w", Durable: "w", MaxAckPending: 3, MaxWaiting: 10}, ""))
	s.cache.drop(stream{name: "jobs"}) // as after a second
	pull()
	s.nextItem("c")
}

// However many pulls there are of consumers that do not exist, few of them wait.
func TestFloodOfAbsentConsumers(t *testing.T) {
	s := newSystem(t)
	pull := func(i int) {
		s.receive(&leaf.Message{Subject: fmt.Sprint("$JS.pq.API.CONSUMER.MSG.NEXT.jobs.w", i), Reply: "_INBOX.pull", Payload: []byte("1")})
	}
	for range maxTasks {
		s.slots <- struct{}{} // no read goes on
	}
	for i := range maxTasks + maxWaitingTasks {
		pull(i)
	}
	pull(0)
	same(t, "one too many", string(s.sent().Header), "NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n")

	for range maxTasks {
		<-s.slots
	}
	for range maxTasks + maxWaitingTasks {
		same(t, "an answer", string(s.sent().Header), "NATS/1.0 503\r\n\r\n")
	}
}

// A record that cannot be read is an error, and stays.
func TestCorruptRecord(t *testing.T) {
	s := newSystem(t)
	s.do(subjects.Priority, "jobs", fdbpq.Op{Kind: fdbpq.OpSetConsumer, Record: "w", Change: func([]byte, time.Time) ([]byte, error) { return []byte("{"), nil }})
	s.fails("pq.API.CONSUMER.NAMES.jobs", "", errUnavailable, "cannot be read")
	s.fails("pq.API.CONSUMER.CREATE.jobs.w", create(`{}`), errUnavailable, "cannot be read")
	if _, err := s.consumerOf(context.Background(), stream{subjects.Priority, "jobs"}, "w"); err == nil {
		t.Error("there is no error")
	}
}

// Once a consumer's leases are shorter, the places of those are free as soon as they should be.
func TestShorterLeases(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "a", "b")
	pull := func(wait time.Duration) { s.pullAs(jetstream.ConsumerConfig{MaxAckPending: 2, AckWait: wait}, hour) }
	pull(fdbpq.MaxLease)
	s.nextItem("a")
	pull(time.Second)
	s.nextItem("b")
	pull(time.Second)
	s.clock.advance(2 * time.Second)
	s.nextItem("b")
}
