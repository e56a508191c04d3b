package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

func TestInfo(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := client.New(e.Conn)
	jobs := c.PriorityQueue("jobs")
	for _, priority := range []int64{5, -1, 5} {
		if _, err := jobs.Push(t.Context(), priority, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := jobs.LeaseMin(t.Context(), client.AckWait(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, q := range []interface {
		Info(context.Context) (*client.QueueInfo, error)
	}{jobs, c.Queue("jobs")} {
		info, err := q.Info(t.Context())
		if err != nil || info.Queue != "jobs" {
			t.Fatalf("%T: %+v, %v", q, info, err)
		}
		if q != jobs {
			if info.Ready != 0 || info.OldestAge != nil || info.NextDue != nil || info.Priorities != nil {
				t.Errorf("empty: %+v", info)
			}
			continue
		}
		if info.Ready != 2 || info.Leased != 1 || len(info.Priorities) != 1 || info.Priorities[0].Count != 2 ||
			info.OldestAge == nil || *info.OldestAge > time.Minute || info.NextDue == nil || time.Until(*info.NextDue) < time.Minute {
			t.Errorf("%+v", info)
		}
	}
	if info, err := c.Queue("a b").Info(t.Context()); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("of a queue without a valid name: %+v, %v", info, err)
	}
}
