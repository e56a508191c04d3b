package main

import (
	"context"
	"fmt"
	"reflect"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/internal/spelling"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// isUnused reports whether a queue has no items and no settings. Nothing else tells a queue from a
// misspelt name.
func isUnused(i *client.QueueInfo) bool {
	return i.Ready+i.Leased+i.Delayed == 0 && reflect.ValueOf(i.Settings).IsZero()
}

// suggest returns what may be wrong with the name of a queue that is not used, and "" for one that
// is, or if that cannot be found out.
func (s *session) suggest(ctx context.Context) string {
	q := s.of
	if info, err := s.queue.Info(ctx); err != nil || !isUnused(info) {
		return ""
	}

	other := target.New(s.client, !q.fifo, q.name)
	if info, err := other.Info(ctx); err == nil && !isUnused(info) {
		if q.fifo {
			return fmt.Sprintf("%s is a priority queue: leave out --fifo", q.name)
		}
		return fmt.Sprintf("%s is a FIFO queue: add --fifo", q.name)
	}

	list, err := s.list(ctx, q.fifo, "")
	if err != nil {
		return ""
	}

	best, least := "", len(q.name)/3+1 // more changes make another word
	for _, used := range list.Queues {
		if d := spelling.Distance(q.name, used.Queue); d <= least {
			best, least = used.Queue, d-1
		}
	}

	if best != "" {
		return fmt.Sprintf("no queue %s is in use: did you mean %s?", q.name, best)
	}
	return fmt.Sprintf("no queue %s is in use: pq ls lists those that are", q.name)
}

// list returns a page of the queues of a kind.
func (s *session) list(ctx context.Context, fifo bool, after string) (client.QueueList, error) {
	if fifo {
		return s.client.ListQueues(ctx, after, 0)
	}
	return s.client.ListPriorityQueues(ctx, after, 0)
}

// noteUnused tells people that the queue they named is not in use, and reports whether that is so.
// That is no error: queues need no creation.
func (s *session) noteUnused(ctx context.Context) bool {
	text := s.suggest(ctx)
	if text != "" {
		_, _ = fmt.Fprintln(s.of.cmd.ErrOrStderr(), "pq:", text) // there is nowhere to report a failure
	}
	return text != ""
}

// explainEmpty adds to the error of a queue without items what may be wrong with its name. It does
// so only for people, because it takes more requests.
func (s *session) explainEmpty(err error) error {
	if err != client.ErrEmpty || !terminal.Is(s.of.cmd.ErrOrStderr()) {
		return err
	}
	if text := s.suggest(s.usable); text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}
