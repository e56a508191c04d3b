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

// JetStream's error codes that consumers alone get.
const (
	errNameInUse       = 10013
	errTooManyConsumer = 10026
	errFilter          = 10093
	errNameTooLong     = 10102
	errConsumerExists  = 10148
	errConsumerMissing = 10149
)

// create returns the payload of a request to create a consumer of jobs.
func create(config string) string { return `{"stream_name":"jobs","config":` + config + `}` }

// withAction returns the payload with an action, such as "update".
func withAction(action, payload string) string {
	return strings.Replace(payload, "{", `{"action":"`+action+`",`, 1)
}

// Each priority queue has the consumers min and max, and a FIFO queue min alone. They have the
// queue's settings, can be created as they are, and cannot be changed or deleted.
func TestBuiltinConsumers(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "a", "b")
	s.configure("jobs", func(set *fdbpq.Settings) { set.AckWait = 45 * time.Second })

	r := s.succeeds("pq.API.CONSUMER.INFO.jobs.max", "")
	for name, want := range map[string]string{
		"durable_name":    `"max"`,
		"ack_policy":      `"explicit"`,
		"ack_wait":        "45000000000",
		"max_ack_pending": "100",
		"metadata":        `{"pq.order":"max"}`,
	} {
		same(t, name, member(t, r.Config, name), want)
	}

	same(t, "names", fmt.Sprint(s.succeeds("pq.API.CONSUMER.NAMES.jobs", "").Consumers),
		"[max min]")
	same(t, "names", fmt.Sprint(s.succeeds("q.API.CONSUMER.NAMES.jobs", "").Consumers), "[min]")
	s.fails("q.API.CONSUMER.INFO.jobs.max", "", errNoConsumer, "not found")

	// As they are, with any of the ways to leave something out.
	for _, config := range []string{
		`{"durable_name":"max","ack_policy":"explicit"}`,
		`{"durable_name":"max","ack_policy":"explicit","ack_wait":45000000000,` +
			`"max_ack_pending":100,"filter_subject":"pq.jobs.push","metadata":{"pq.order":"max"}}`,
		`{"name":"max","max_deliver":-1,"inactive_threshold":1000000000}`,
		`{"name":"max","pause_until":"0001-01-01T00:00:00Z"}`, // from the nats tool
		string(r.Config),
	} {
		s.succeeds("pq.API.CONSUMER.CREATE.jobs.max", create(config))
	}

	// Not as they are. Of two differences, the first is named.
	for config, part := range map[string]string{
		`{"durable_name":"max","max_ack_pending":5}`:              "max_ack_pending",
		`{"durable_name":"max","ack_wait":1000000000}`:            "ack_wait",
		`{"durable_name":"max","metadata":{"pq.order":"min"}}`:    "metadata",
		`{"durable_name":"max","description":"another"}`:          "description",
		`{"durable_name":"max","max_deliver":3,"max_waiting":10}`: "max_deliver",
	} {
		s.fails("pq.API.CONSUMER.CREATE.jobs.max", create(config), errNameInUse, part)
	}
	s.fails("pq.API.CONSUMER.DELETE.jobs.max", "", errBadRequest, "cannot be deleted")
}

// A consumer is created with any of three calls, and is listed. The actions "create" and "update"
// keep it from being changed or created by mistake. A change counts at once at every bridge with
// the store, and a deleted consumer is gone.
func TestConsumers(t *testing.T) {
	s := newSystem(t)
	config := create(`{"durable_name":"w","ack_policy":"explicit","ack_wait":5000000000,` +
		`"max_deliver":3,"metadata":{"pq.order":"max","team":"a"}}`)

	r := s.succeeds("pq.API.CONSUMER.CREATE.jobs.w", config)

	same(t, "type", r.Type, "io.nats.jetstream.api.v1.consumer_create_response")
	same(t, "name", r.Name, "w")

	// The nats tool sends the zero time for no pause.
	s.succeeds("pq.API.CONSUMER.CREATE.jobs.z",
		create(`{"durable_name":"z","pause_until":"0001-01-01T00:00:00Z"}`))
	s.succeeds("pq.API.CONSUMER.DELETE.jobs.z", "")

	// What the request left out has JetStream's defaults.
	for name, want := range map[string]string{
		"max_ack_pending": "1000",
		"max_waiting":     "512",
		"max_deliver":     "3",
		"metadata":        `{"pq.order":"max","team":"a"}`,
	} {
		same(t, name, member(t, r.Config, name), want)
	}

	// With the filter in the subject, with the older call, and without a name.
	s.succeeds("pq.API.CONSUMER.CREATE.jobs.f.pq.jobs.push",
		create(`{"durable_name":"f","filter_subject":"pq.jobs.push"}`))
	s.succeeds("pq.API.CONSUMER.DURABLE.CREATE.jobs.d",
		create(`{"durable_name":"d","priority_policy":"none","num_replicas":1}`))
	unnamed := s.succeeds("pq.API.CONSUMER.CREATE.jobs", create(`{}`)).Name

	names := fmt.Sprint(s.succeeds("pq.API.CONSUMER.NAMES.jobs", "").Consumers)
	for _, name := range []string{"w", "f", "d", unnamed, "min", "max"} {
		if !strings.Contains(names, name) || name == "" {
			t.Errorf("%s is not in %s", name, names)
		}
	}

	const all, offset = 6, 4
	r = s.succeeds("pq.API.CONSUMER.LIST.jobs", fmt.Sprintf(`{"offset":%d}`, offset))
	same(t, "listed from an offset", length(r.Consumers), all-offset)
	same(t, "total", r.Total, all)
	same(t, "streams that have something", length(s.succeeds("pq.API.STREAM.NAMES", "").Streams), 1)

	// Another bridge with the same store knows them as well.
	c, err := s.consumerOf(context.Background(), stream{subjects.Priority, "jobs"}, "w")
	must(t, err)
	same(t, "end", c.end, fdbpq.Back)
	same(t, "max_deliver", c.config.MaxDeliver, 3)

	// An action that does not fit is refused, and changes nothing.
	changed := create(`{"durable_name":"w","max_deliver":4}`)
	s.fails("pq.API.CONSUMER.CREATE.jobs.w", withAction("create", changed), errConsumerExists,
		"already exists")
	s.fails("pq.API.CONSUMER.CREATE.jobs.v",
		withAction("update", strings.Replace(changed, `"w"`, `"v"`, 1)),
		errConsumerMissing, "does not exist")
	s.fails("pq.API.CONSUMER.CREATE.jobs.w", withAction("drop", changed), errJSON, "action")
	same(t, "max_deliver",
		member(t, s.succeeds("pq.API.CONSUMER.INFO.jobs.w", "").Config, "max_deliver"), "3")

	// To create a consumer as it already is succeeds.
	s.succeeds("pq.API.CONSUMER.CREATE.jobs.w", withAction("update", changed))
	s.succeeds("pq.API.CONSUMER.CREATE.jobs.w", withAction("create", changed))
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

// A consumer that the queue cannot have is refused with what would be right, and is not stored.
func TestWrongConsumers(t *testing.T) {
	s := newSystem(t)
	s.fails("q.API.CONSUMER.CREATE.jobs.w", create(`{"metadata":{"pq.order":"max"}}`), errConfig,
		"max for a priority queue")
	s.fails("pq.API.CONSUMER.CREATE.jobs.w", create(`{"metadata":{"pq.other":"min"}}`), errConfig,
		"pq.order")
	s.fails("pq.API.CONSUMER.CREATE.jobs.w", create(`{"filter_subject":"orders"}`), errFilter,
		"want pq.jobs.push")

	longest := fmt.Sprint(fdbpq.MaxRecordName)
	s.fails("pq.API.CONSUMER.CREATE.jobs."+strings.Repeat("w", 10_000), create(`{}`),
		errNameTooLong, longest)

	const builtin = 2 // min and max
	same(t, "consumers", s.succeeds("pq.API.CONSUMER.NAMES.jobs", "").Total, builtin)
}

// The consumers of a queue are limited. One of them can be changed at the limit, and unused ones
// make room for others.
func TestMaxConsumers(t *testing.T) {
	s := newSystem(t)
	for i := range fdbpq.MaxConsumers {
		s.succeeds(fmt.Sprintf("pq.API.CONSUMER.CREATE.jobs.w%d", i), create(`{}`))
	}
	s.fails("pq.API.CONSUMER.CREATE.jobs.more", create(`{}`), errTooManyConsumer,
		"maximum consumers limit reached")

	s.succeeds("pq.API.CONSUMER.CREATE.jobs.w7", create(`{"max_deliver":2}`))
	same(t, "consumers", length(s.succeeds("pq.API.CONSUMER.LIST.jobs", "").Consumers),
		maxConsumers)

	for range 2 { // a consumer goes once nobody has used it for two terms
		s.clock.advance(minThreshold + time.Second)
		s.succeeds("pq.API.CONSUMER.LIST.jobs", "")
	}

	s.succeeds("pq.API.CONSUMER.CREATE.jobs.more", create(`{}`))
}

// A consumer without a durable name stays while it is used, and goes after two terms without use:
// its record is deleted, and its name is free.
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
	for range 5 { // more than two terms together
		s.clock.advance(minThreshold / 2)
		c := find()
		if c == nil {
			t.Fatal("a consumer that is used has gone")
		}

		s.touch(c, s.clock.now().Add(time.Second))
		s.touch(c, s.clock.now().Add(time.Second))
		s.running.Wait()
	}

	// A use so soon after the last is not written to the store.
	written := find().noted.Load()
	s.touch(find(), s.clock.now().Add(2*time.Second))
	s.running.Wait()

	same(t, "the use that is noted", find().noted.Load(), written)

	s.clock.advance(minThreshold + 2*time.Second)
	if find() == nil {
		t.Error("a consumer unused for one term has gone: the clock may have been set")
	}

	s.clock.advance(minThreshold)
	if find() != nil {
		t.Error("an unused consumer is still there")
	}

	s.running.Wait()
	same(t, "records",
		len(s.do(jobs.kind, jobs.name, fdbpq.Op{Kind: fdbpq.OpConsumers})[0].Records), 0)
	s.fails("pq.API.CONSUMER.CREATE.jobs.w", withAction("update", create(`{}`)),
		errConsumerMissing, "does not exist")

	s.succeeds("pq.API.CONSUMER.CREATE.jobs.w", withAction("create", create(`{"max_deliver":7}`)))
}

// Pulls that do not wait count as use of their consumer, so that it stays.
func TestPullsThatDoNotWaitUseTheirConsumer(t *testing.T) {
	synctest.Test(t, testPullsThatDoNotWaitUseTheirConsumer)
}

func testPullsThatDoNotWaitUseTheirConsumer(t *testing.T) {
	s := newSystem(t)
	s.succeeds("pq.API.CONSUMER.CREATE.jobs.w", create(`{}`))

	for range 5 { // more than two terms together
		s.clock.advance(minThreshold / 2)
		s.cache.drop(stream{subjects.Priority, "jobs"})

		s.receive(&leaf.Message{
			Subject: "$JS.pq.API.CONSUMER.MSG.NEXT.jobs.w",
			Reply:   "_INBOX.x",
			Payload: []byte(pullWithoutWait),
		})

		s.nextStatus("404 No Messages")
		s.running.Wait()
	}
}

// A queue that is paused pauses its consumers, which CONSUMER.INFO says.
func TestPausedConsumers(t *testing.T) {
	s := newSystem(t)
	s.configure("jobs", func(set *fdbpq.Settings) { set.PauseUntil = s.clock.now().Add(time.Hour) })

	text := string(s.succeeds("pq.API.CONSUMER.INFO.jobs.min", "").text)
	const nearlyAnHour = `"pause_remaining":3` // of 3,600,000,000,000 ns, or 3,599,...
	if !strings.Contains(text, `"paused":true,`+nearlyAnHour) {
		t.Errorf("got %s", text)
	}
}

// A pull for a consumer that does not exist gets 503, as from NATS when nobody listens.
func TestPullOfNobody(t *testing.T) {
	s := newSystem(t)
	for _, subject := range []string{"jobs.nobody", "jobs", "a b.min", "jobs.min.more"} {
		s.receive(&leaf.Message{
			Subject: "$JS.pq.API.CONSUMER.MSG.NEXT." + subject,
			Reply:   "_INBOX.pull",
			Payload: []byte("1"),
		})
		same(t, "status for "+subject, string(s.sent().Header), "NATS/1.0 503\r\n\r\n")
	}
}

// A consumer that another bridge creates is there for the next pull, even if the pull before missed
// it. It is cached then, but not from a read that began before a change.
func TestConsumerOfAnotherBridge(t *testing.T) { synctest.Test(t, testConsumerOfAnotherBridge) }

func testConsumerOfAnotherBridge(t *testing.T) {
	s := newSystem(t)
	other, err := newFace(s.config)
	must(t, err)

	other.out = s.sender
	t.Cleanup(func() { other.tasks.end(context.Background()) })

	pull := func() string {
		t.Helper()
		other.receive(&leaf.Message{
			Subject: "$JS.pq.API.CONSUMER.MSG.NEXT.jobs.w",
			Reply:   "_INBOX.pull",
			Payload: []byte(`{"batch":1,"no_wait":true}`),
		})

		return string(s.sent().Header)
	}

	same(t, "before", pull(), "NATS/1.0 503\r\n\r\n")

	s.succeeds("pq.API.CONSUMER.CREATE.jobs.w", create(`{"durable_name":"w"}`))
	same(t, "at once", pull(), "NATS/1.0 404 No Messages\r\n\r\n")
	if other.cache.streams[stream{name: "jobs"}].byName["w"] == nil {
		t.Error("it is not cached")
	}

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
		s.receive(&leaf.Message{
			Subject: "$JS.pq.API.CONSUMER.MSG.NEXT.jobs.w",
			Reply:   "_INBOX.pull",
			Payload: []byte(pullForAnHour),
		})
	}

	// pullThatWaits starts a pull that finds all places taken, once the pulls before are through.
	pullThatWaits := func(delivered int) {
		t.Helper()
		s.waitOutstanding(counts{Delivered: uint64(delivered), AckPending: delivered})
		pull()
		s.waitOutstanding(counts{Delivered: uint64(delivered), AckPending: delivered, Waiting: 1})
	}

	s.succeeds("pq.API.CONSUMER.CREATE.jobs.w", create(`{"durable_name":"w","max_ack_pending":1}`))
	s.push("jobs", "a", "b", "c")
	pull()
	s.nextItem("a")

	// This bridge changes the consumer, which gives the waiting pull a place.
	pullThatWaits(1)
	change := create(`{"durable_name":"w","max_ack_pending":2}`)
	s.receive(&leaf.Message{Subject: "$JS.pq.API.CONSUMER.CREATE.jobs.w", Payload: []byte(change)})
	s.nextItem("b")

	// Another bridge changes it, which this one knows when it reads the consumer again.
	pullThatWaits(2)
	other, err := newFace(s.config)
	must(t, err)

	t.Cleanup(func() { other.tasks.end(context.Background()) })
	changed := &jetstream.ConsumerConfig{
		Name:          "w",
		Durable:       "w",
		MaxAckPending: 3,
		MaxWaiting:    10,
	}
	must(t, other.setRecord(context.Background(), stream{name: "jobs"}, changed, ""))

	s.cache.drop(stream{name: "jobs"}) // as after a second, when a cached consumer is too old
	pull()
	s.nextItem("c")
}

// Of pulls whose consumers are not cached, only some wait for the store to be read. One more gets
// 409, and the others get 503 if there is no such consumer.
func TestFloodOfAbsentConsumers(t *testing.T) {
	s := newSystem(t)
	pull := func(i int) {
		s.receive(&leaf.Message{
			Subject: fmt.Sprint("$JS.pq.API.CONSUMER.MSG.NEXT.jobs.w", i),
			Reply:   "_INBOX.pull",
			Payload: []byte("1"),
		})
	}

	for range maxTasks {
		s.slots <- struct{}{} // so that no read can begin
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

// A consumer's record that cannot be read is an error of every call that needs it, and is not
// overwritten.
func TestCorruptRecord(t *testing.T) {
	s := newSystem(t)
	s.do(subjects.Priority, "jobs", fdbpq.Op{
		Kind:   fdbpq.OpSetConsumer,
		Record: "w",
		Change: func([]byte, time.Time) ([]byte, error) { return []byte("{"), nil },
	})
	s.fails("pq.API.CONSUMER.NAMES.jobs", "", errUnavailable, "cannot be read")
	s.fails("pq.API.CONSUMER.CREATE.jobs.w", create(`{}`), errUnavailable, "cannot be read")

	_, err := s.consumerOf(context.Background(), stream{subjects.Priority, "jobs"}, "w")
	if err == nil {
		t.Error("there is no error")
	}
}

// Once a consumer's leases are shorter, the places of the shorter ones are free as soon as they
// end, although a long one is still held.
func TestShorterLeases(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "a", "b")
	pull := func(wait time.Duration) {
		s.pullAs(jetstream.ConsumerConfig{MaxAckPending: 2, AckWait: wait}, pullForAnHour)
	}
	pull(fdbpq.MaxLease)
	s.nextItem("a")
	pull(time.Second)
	s.nextItem("b")

	// Both places are taken until the short lease ends.
	pull(time.Second)
	s.clock.advance(2 * time.Second)
	s.nextItem("b")
}
