package client

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// Settings are settings of a queue. In a change, a field that is nil stays as it is, and one that
// points to a zero value, or an empty Backoff, is reset to its default:
//
//	wait := time.Minute
//	now, err := jobs.Configure(ctx, client.Settings{AckWait: &wait, Backoff: []time.Duration{}})
type Settings = subjects.Settings

// Settings returns the settings of the queue. Fields that are not set are nil.
//
// Errors: those that every call can return.
func (q *PriorityQueue) Settings(ctx context.Context) (Settings, error) { return q.q.config(ctx, nil) }

// Configure changes settings of the queue, and returns all settings that it has then. They are in
// force on every bridge once it returns.
//
// Errors: [ErrBadRequest], with a text that names the setting: nothing was changed. And those that
// every call can return. After any other error, configure again: that does no harm.
func (q *PriorityQueue) Configure(ctx context.Context, change Settings) (Settings, error) {
	return q.q.config(ctx, &change)
}

// Settings is PriorityQueue.Settings.
func (q *Queue) Settings(ctx context.Context) (Settings, error) { return q.q.config(ctx, nil) }

// Configure is PriorityQueue.Configure.
func (q *Queue) Configure(ctx context.Context, change Settings) (Settings, error) {
	return q.q.config(ctx, &change)
}

func (q *queue) config(ctx context.Context, change *Settings) (Settings, error) {
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
	s, err := subjects.ParseSettingsReply(reply.Data)
	if err != nil {
		return Settings{}, fmt.Errorf("%w: %w", ErrBadReply, err)
	}
	return *s, nil
}
