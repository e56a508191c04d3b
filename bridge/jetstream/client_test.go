package jetstream

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The calls that Go's client has for streams and consumers work over a real leaf node connection,
// except those that no queue can carry out.
func TestGoClient(t *testing.T) {
	s, nc := connected(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	js, err := jetstream.NewWithDomain(nc, "pq")
	must(t, err)

	s.push("jobs", "a", "b")
	s.push("more", "c")

	jobs, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name:      "jobs",
		Subjects:  []string{"pq.jobs.push"},
		Retention: jetstream.WorkQueuePolicy,
	})
	must(t, err)
	same(t, "messages", jobs.CachedInfo().State.Msgs, 2)

	_, err = js.CreateOrUpdateStream(ctx, jobs.CachedInfo().Config)
	must(t, err)
	name, err := js.StreamNameBySubject(ctx, "pq.jobs.push")
	must(t, err)

	same(t, "name by subject", name, "jobs")

	streams, listed := js.ListStreams(ctx), ""
	for info := range streams.Info() {
		listed += fmt.Sprint(info.Config.Name, " ", info.State.Msgs, " ")
	}
	must(t, streams.Err())

	same(t, "streams", listed, "jobs 2 more 1 ")

	goClientConsumers(t, ctx, jobs)

	must(t, jobs.Purge(ctx))
	info, err := jobs.Info(ctx, jetstream.WithSubjectFilter(">"))
	must(t, err)

	same(t, "messages", info.State.Msgs, 0)
	if err := js.DeleteStream(ctx, "jobs"); !errors.Is(err, jetstream.ErrBadRequest) {
		t.Errorf("DeleteStream: got %v", err)
	}
}

func goClientConsumers(t *testing.T, ctx context.Context, jobs jetstream.Stream) {
	t.Helper()
	c, err := jobs.Consumer(ctx, "max")
	must(t, err)
	same(t, "pending", c.CachedInfo().NumPending, 2)

	_, err = jobs.CreateOrUpdateConsumer(ctx,
		jetstream.ConsumerConfig{Durable: "min", AckPolicy: jetstream.AckExplicitPolicy})
	must(t, err)

	config := jetstream.ConsumerConfig{
		Durable:       "w",
		FilterSubject: "pq.jobs.push",
		AckWait:       5 * time.Second,
		Metadata:      map[string]string{metaOrder: orderMax},
	}

	_, err = jobs.CreateConsumer(ctx, config)
	must(t, err)
	_, err = jobs.CreateConsumer(ctx, config)
	must(t, err)

	config.MaxDeliver = 5
	if _, err := jobs.CreateConsumer(ctx, config); !errors.Is(err, jetstream.ErrConsumerExists) {
		t.Errorf("CreateConsumer: got %v", err)
	}

	c, err = jobs.UpdateConsumer(ctx, config)
	must(t, err)
	same(t, "max_deliver", c.CachedInfo().Config.MaxDeliver, 5)

	config.Durable = "v"
	_, err = jobs.UpdateConsumer(ctx, config)
	if !errors.Is(err, jetstream.ErrConsumerDoesNotExist) {
		t.Errorf("UpdateConsumer: got %v", err)
	}

	_, err = jobs.CreateConsumer(ctx, jetstream.ConsumerConfig{})
	must(t, err)

	names, n := jobs.ConsumerNames(ctx), 0
	for range names.Name() {
		n++
	}
	must(t, names.Err())

	same(t, "consumers, with max, min and w", n, 4)
	must(t, jobs.DeleteConsumer(ctx, "w"))
	if _, err := jobs.Consumer(ctx, "w"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("a deleted consumer: got %v", err)
	}

	if _, err := jobs.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{}); err == nil {
		t.Error("OrderedConsumer: no error")
	}
}

// When a face stops, each pull that waits is told so before the connection may end. Afterwards
// requests have no responders.
func TestStop(t *testing.T) {
	const n = 100
	s, nc := connected(t)
	same(t, "ready", s.Ready(), nil)

	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	must(t, err)

	const subject = "$JS.pq.API.CONSUMER.MSG.NEXT.jobs.min"
	for range n {
		must(t, nc.PublishRequest(subject, inbox, []byte(pullForAnHour)))
	}
	eventually(t, "the pulls",
		func() bool { return s.counts(jobsMin).Waiting == n && s.dispatcher.Waiters() > 0 })

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(t, s.Stop(ctx))
	must(t, s.Flush(ctx))
	must(t, nc.FlushTimeout(patience))

	told, _, err := sub.Pending()
	must(t, err)
	same(t, "pulls that were told", told, n)

	m, err := sub.NextMsg(patience)
	must(t, err)
	same(t, "the status", m.Header.Get("Status")+" "+m.Header.Get("Description"),
		"409 Server Shutdown")

	_, err = nc.RequestWithContext(ctx, "$JS.pq.API.INFO", nil)
	if !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a request after the end: got %v", err)
	}
}
