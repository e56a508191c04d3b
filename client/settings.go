package client

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// Settings are the settings of a queue. Fields that are zero are not set.
type Settings = settings.Settings

// Settings returns the settings of the queue.
//
// Errors: those that every call can return.
func (q *PriorityQueue) Settings(ctx context.Context) (Settings, error) { return q.q.config(ctx, nil) }

// Configure sets those settings of the queue that change has, resets those that are only named, and
// returns all that it has then. They are in force on every bridge once it returns.
//
//	now, err := jobs.Configure(ctx, client.Settings{AckWait: time.Minute}, "backoff", "max_deliver")
//
// Errors: [ErrBadRequest], with a text that names the setting: nothing was changed. And those that
// every call can return. After any other error, configure again: that does no harm.
func (q *PriorityQueue) Configure(ctx context.Context, change Settings, reset ...string) (Settings, error) {
	return q.q.config(ctx, &subjects.Change{Settings: change, Reset: reset})
}

// Settings is PriorityQueue.Settings.
func (q *Queue) Settings(ctx context.Context) (Settings, error) { return q.q.config(ctx, nil) }

// Configure is PriorityQueue.Configure.
func (q *Queue) Configure(ctx context.Context, change Settings, reset ...string) (Settings, error) {
	return q.q.config(ctx, &subjects.Change{Settings: change, Reset: reset})
}

func (q *queue) config(ctx context.Context, change *subjects.Change) (Settings, error) {
	subject, err := q.subject(subjects.Config)
	if err != nil {
		return Settings{}, err
	}

	m := &nats.Msg{Subject: subject}
	if change != nil {
		m.Data = change.Encode()
	}

	reply, err := q.client.request(ctx, m, change != nil)
	if err != nil {
		return Settings{}, err
	}

	s, err := subjects.ParseSettings(reply.Data)
	if err != nil {
		return Settings{}, fmt.Errorf("%w: %w", ErrBadReply, err)
	}
	return *s, nil
}
