package client

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// A client that does without frames asks for them again after a minute.
func TestFramesAgain(t *testing.T) {
	e := testenv.New(t, testenv.Options{Stopped: true})
	e.NATS.Start()
	nc := e.Connect()
	framed := make(chan bool, 9)
	_, err := nc.Subscribe("pq.jobs.>", func(m *nats.Msg) {
		o, err := subjects.ParsePopOptions(m.Data)
		if err != nil {
			t.Error(err)
		}
		framed <- o.Frames
		code := subjects.CodeNotFound
		if o.Frames {
			code = subjects.CodeBadRequest
		}
		_ = m.RespondMsg(&nats.Msg{Header: (&subjects.Error{Code: code, Text: "no"}).Headers()}) // else the test has no reply
	})
	if err != nil {
		t.Fatal(err)
	}
	c := New(nc)
	asks := func(want ...bool) {
		t.Helper()
		if _, err := c.PriorityQueue("jobs").PopMinBatch(t.Context(), 2); err == nil {
			t.Error("no error")
		}
		for _, w := range want {
			if got := <-framed; got != w {
				t.Errorf("frames %t, want %t", got, w)
			}
		}
	}
	before := time.Now()
	asks(true, false)
	if left := time.Unix(0, c.modernAfter.Load()).Sub(before); left < 59*time.Second || left > 2*time.Minute {
		t.Errorf("asks again after %v", left)
	}
	asks(false)
	c.modernAfter.Store(time.Now().UnixNano())
	asks(true, false)
	asks(false)
}
