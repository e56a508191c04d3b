package client_test

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// A job that has died and was sent back has the ID of its push, so that an effect noted by it
// happens once.
func TestJobIDAfterRedrive(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := newClient(e.Conn)
	jobs, dead := c.PriorityQueue("jobs"), c.PriorityQueue("jobs-dead")
	id := must(jobs.Push(t.Context(), 5, []byte("a"), client.MsgID("invoice-17"))).ID
	ok(t, leaseOne(t, jobs).Term(t.Context(), ""))

	letter, _, err := jobs.GetByMsgID(t.Context(), "invoice-17")
	if err != nil || letter.ID != id || letter.FoundIn != "jobs-dead" || letter.Place == "" {
		t.Fatalf("dead: %+v, %v", letter, err)
	}
	results, err := dead.RedriveItemsAt(t.Context(), []string{letter.Place})
	if err != nil || results[0].Err() != nil || results[0].ID != id || results[0].Home != "jobs" {
		t.Fatalf("redriven: %+v, %v", results, err)
	}
	again := must(dead.RedriveItemsAt(t.Context(), []string{letter.Place}))
	failsWith(t, "a repeated redrive", client.ErrNotFound)(nil, again[0].Err())

	delivery := must(jobs.Lease(t.Context(), client.AckWait(time.Hour)))
	if delivery.ID != id || delivery.Place != results[0].Place || delivery.FoundIn != "" {
		t.Errorf("delivered: %+v", delivery.Item)
	}
	ok(t, delivery.Ack(t.Context()))
}

// A message id that no push has is not found, and one that cannot be is refused.
func TestGetByBadMsgID(t *testing.T) {
	jobs := newClient(testenv.New(t, testenv.Options{}).Conn).PriorityQueue("jobs")
	for msgID, want := range map[string]error{
		"x":    client.ErrNotFound,
		"":     client.ErrBadRequest,
		"\xff": client.ErrBadRequest,
	} {
		_, _, err := jobs.GetByMsgID(t.Context(), msgID)
		failsWith(t, msgID, want)(nil, err)
	}
}
