package client_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// What is refused is shown as the caller wrote it, with what would be right.
func TestBadRequestsAreReadable(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := client.New(e.Conn)
	q := c.PriorityQueue("jobs")
	pushed(t, q, 1, "a")
	d := leaseOne(t, q)
	ctx := t.Context()
	push := func(options ...client.PushOption) func() error {
		return func() error { _, err := q.Push(ctx, 1, nil, options...); return err }
	}
	lease := func(options ...client.LeaseOption) func() error {
		return func() error { _, err := q.LeaseMin(ctx, options...); return err }
	}
	set := func(s client.Settings) func() error {
		return func() error { _, err := q.Configure(ctx, s); return err }
	}
	batch := func(headers nats.Header) func() error {
		return func() error {
			_, err := q.PushBatch(ctx, []client.PushItem{{Message: client.Message{Headers: headers}}})
			return err
		}
	}
	for _, test := range []struct {
		call func() error
		want string
	}{
		{lease(client.AckWait(time.Millisecond)), `ack_wait: "1ms": want 100ms to 12h`},
		{lease(client.AckWait(-time.Second)), `ack_wait: "-1s": want 100ms to 12h`},
		{lease(client.AckWait(13 * time.Hour)), `ack_wait: "13h0m0s": want 100ms to 12h`},
		{lease(client.Expires(-1)), `want 1ms to 1h`},
		{lease(client.IdleHeartbeat(time.Second)), `idle_heartbeat`},
		{lease(client.Expires(2 * time.Hour)), `expires: "2h0m0s": want 1ms to 1h`},
		{lease(client.Expires(math.MaxInt64)), `want 1ms to 1h`},
		{lease(client.Expires(1500)), `expires: "1.5us": want 1ms to 1h`},
		{lease(client.Expires(time.Second), client.IdleHeartbeat(time.Millisecond)), `idle_heartbeat: "1ms": want 100ms to 1h`},
		{lease(client.MaxBytes(-1)), `max_bytes: -1: want an integer from 0`},
		{func() error { _, err := q.LeaseMinBatch(ctx, 2000); return err }, `batch: 2000: want an integer from 1 to 1000`},
		{func() error { return d.Nak(ctx, -time.Second) }, `delay: "-1s": want 0s to 87600h`},
		{func() error { return d.Snooze(ctx, 100000*time.Hour) }, `delay: "100000h0m0s": want 0s to 87600h`},
		{set(client.Settings{AckWait: time.Millisecond}), `ack_wait: "1ms": want 100ms to 12h`},
		{set(client.Settings{Backoff: []time.Duration{-1}}), `backoff: element 0: "-1ns": want 0s to 87600h`},
		{set(client.Settings{DuplicateWindow: -time.Minute}), `duplicate_window: "-1m0s": want 100ms to 87600h`},
		{set(client.Settings{MaxDeliver: -1}), `max_deliver: -1: want an integer from 0`},
		{func() error { _, err := q.Purge(ctx, "old"); return err }, `state: "old": want "ready", "delayed" or "leased"`},
		{func() error { return q.Remove(ctx, "") }, `item id: "": want one as a push or pop returned it`},
		{func() error { return q.Remove(ctx, "xyz") }, `item id: "xyz": want one as a push or pop returned it`},
		{func() error { return c.Delivery("pq.jobs.ack.xyz").Ack(ctx) }, `token: "xyz"... (3 bytes): want one as a leased item came with it`},
		{func() error { return c.Delivery("").Ack(ctx) }, `no subject of acknowledgements: want one as AckSubject returned it`},
		{func() error {
			_, err := q.PushMsg(ctx, 1, client.Message{Headers: nats.Header{"a\nb": {""}}})
			return err
		}, `header "a\nb": want a name of letters`},
		{batch(nats.Header{"": {""}}), `item 0: header "": want a name of letters`},
		{push(client.MsgID("a\nb")), `header Nats-Msg-Id: "a\nb": want one line without spaces at either end`},
		{push(client.Unique(" a")), `header Pq-Unique: " a": want one line without spaces at either end`},
		{batch(nats.Header{"Nats-Msg-Id": {"a\r"}}), `item 0: header Nats-Msg-Id: "a\r": want one line without spaces at either end`},
		{push(client.TTL(time.Millisecond)), `"1ms": want a duration such as 90s`},
		{push(client.Delay(-time.Second)), `"-1s": want a duration with a unit`},
	} {
		err := test.call()
		if !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: want %s", err, test.want)
		}
	}
	ok(t, d.Ack(context.WithoutCancel(ctx)))
}
