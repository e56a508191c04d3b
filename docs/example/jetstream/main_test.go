package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/testenv"
)

func TestMain(m *testing.M) { harness.Main(m) }

// A program may create its stream and its consumer at each start. This one begins with the largest
// priority, though with Consume.
func TestConsumer(t *testing.T) {
	ctx := t.Context()
	js, err := jetstream.NewWithDomain(testenv.New(t, testenv.Options{JetStream: true}).Conn, "pq")
	must(t, err)
	var out strings.Builder
	for range 2 {
		_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name:      "jobs",
			Subjects:  []string{"pq.jobs.push"},
			Retention: jetstream.WorkQueuePolicy,
		})
		must(t, err)
		must(t, push(ctx, js, &out))
	}

	lowest, err := js.CreateOrUpdateConsumer(ctx, "jobs", jetstream.ConsumerConfig{
		Durable:       "lowest-first",
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       time.Minute,
		MaxAckPending: 10,
		Metadata:      map[string]string{"pq.order": "max"},
	})
	must(t, err)

	jobs := make(chan jetstream.Msg, 3)
	consuming, err := lowest.Consume(func(job jetstream.Msg) { jobs <- job })
	must(t, err)
	for range 3 {
		job := <-jobs
		fmt.Fprintf(&out, "%s\n", job.Data())
		must(t, job.DoubleAck(ctx))
	}
	consuming.Stop()
	<-consuming.Closed()

	want := "3 pushed, 0 were there before\n0 pushed, 3 were there before\nwrite the report\ncall back\nput out the fire\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", &out, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
