package client_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// A push is done once for each message id in the window, and for each unique key until its item is done.
func TestPushOnce(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c, ctx := client.New(e.Conn), t.Context()
	jobs, mail := c.PriorityQueue("jobs"), c.Queue("mail")
	must := func(ack client.PushAck, err error) client.PushAck {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return ack
	}
	first := must(jobs.Push(ctx, 5, []byte("a"), client.MsgID("1"), client.Unique("k")))
	want := client.PushAck{Queue: "jobs", ID: first.ID, Priority: 5, Duplicate: true}
	for _, again := range []client.PushAck{
		must(jobs.Push(ctx, 9, nil, client.MsgID("1"))),
		must(jobs.Push(ctx, 9, nil, client.Unique("k"))),
		must(jobs.PushMsg(ctx, 9, client.Message{}.With(client.MsgID("1"), client.Unique("other")))),
	} {
		if first.Duplicate || again != want {
			t.Errorf("pushed %+v, then %+v", first, again)
		}
	}
	item, err := jobs.LeaseMin(ctx)
	if err != nil || item.Headers.Get("Nats-Msg-Id") != "1" || item.Unique != "k" {
		t.Fatalf("leased %+v, %v", item, err)
	}
	if again := must(jobs.Push(ctx, 1, nil, client.Unique("k"))); again.ID != first.ID {
		t.Errorf("leased, and pushed again: %+v", again)
	}
	if err := item.Ack(ctx); err != nil {
		t.Fatal(err)
	}
	if again := must(jobs.Push(ctx, 1, nil, client.Unique("k"))); again.Duplicate {
		t.Errorf("acknowledged, and pushed again: %+v", again)
	}
	if again := must(jobs.Push(ctx, 1, nil, client.MsgID("1"))); again.ID != first.ID {
		t.Errorf("acknowledged, and pushed again: %+v", again)
	}

	must(mail.Enqueue(ctx, []byte("a"), client.MsgID("1")))
	ids, duplicates, err := mail.EnqueueBatchDuplicates(ctx, []client.Message{
		client.Message{}.With(client.MsgID("1")), client.Message{}.With(client.Unique("k")), client.Message{}.With(client.Unique("k")),
	})
	if err != nil || !slices.Equal(duplicates, []int{0, 2}) || ids[1] != ids[2] {
		t.Errorf("%q, %v, %v", ids, duplicates, err)
	}
	for _, bad := range []client.PushOption{client.MsgID(""), client.Unique(strings.Repeat("x", 513))} {
		if _, err := mail.Enqueue(ctx, nil, bad); !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), "want 1 to 512") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
