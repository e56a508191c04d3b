package client

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// Len returns the number of ready items, which excludes leased and delayed ones. It does not count
// items that other programs than bridges and package fdbpq wrote to the store.
func (q *Queue) Len(ctx context.Context) (int64, error) {
	return query(ctx, q, subjects.Len, nil, func(data []byte) (int64, error) {
		length, err := subjects.ParseReply[subjects.Length](data)
		if err != nil || length.Queue == "" {
			return 0, fmt.Errorf("%.64q", data)
		}
		return length.Len, nil
	})
}

// QueueInfo says how many items of a queue are in each state, and more.
type QueueInfo = subjects.QueueInfo

// Info returns the number of items in each state, and more. It does not count items that other
// programs wrote to the store with the bare recipe.
//
// Errors: as for any request.
func (q *Queue) Info(ctx context.Context) (*QueueInfo, error) {
	return query(ctx, q, subjects.Info, nil, subjects.ParseQueueInfo)
}

// Settings are the settings of a queue. Fields that are zero are not set.
type Settings = settings.Settings

// Settings returns the settings of the queue. It asks for an Info, so it needs no right to change
// them.
//
// Errors: as for any request.
func (q *Queue) Settings(ctx context.Context) (Settings, error) {
	info, err := q.Info(ctx)
	if err != nil {
		return Settings{}, err
	}
	return info.Settings, nil
}

// Configure sets the settings in change, resets the named ones, and returns all settings of the
// queue. They are in force on every bridge once it returns.
//
//	now, err := jobs.Configure(ctx, client.Settings{AckWait: time.Minute}, "backoff", "rate")
//
// Errors: [ErrBadRequest], with a text that names the setting, and nothing was changed; and the
// errors of any request. It does no harm to call it again.
func (q *Queue) Configure(ctx context.Context, change Settings, reset ...string) (Settings, error) {
	return q.ChangeSettings(ctx, &subjects.Change{Settings: change, Reset: reset})
}

// ChangeSettings is Configure for any change. This one pauses a group, and other paused groups stay
// as they are, even if somebody else pauses or resumes one at the same moment:
//
//	change := &subjects.Change{Groups: map[string]bool{"acme": true}} // false resumes it
//	now, err := jobs.ChangeSettings(ctx, change)
//
// Pops and leases pass over the items of a paused group, which keep their places.
//
// Errors: as for Configure.
func (q *Queue) ChangeSettings(ctx context.Context, c *subjects.Change) (Settings, error) {
	groups := slices.AppendSeq(slices.Clone(c.Settings.PausedGroups), maps.Keys(c.Groups))
	if err := wantUTF8(groups...); err != nil {
		return Settings{}, err
	}

	s, err := query(ctx, q, subjects.Config, c.Encode(), subjects.ParseSettings)
	if err != nil {
		return Settings{}, err
	}
	return *s, nil
}

// Purge removes all items, or those in a state, and returns their number. state may be "" for all.
// Purge sends as many requests as it takes. An item that changes its state meanwhile may stay. With
// an error, it returns how many items are known to be gone.
//
// Errors: as for any request.
func (q *Queue) Purge(ctx context.Context, state State) (n int64, err error) {
	return sumParts(func(int64) (int64, bool, error) { return q.PurgePart(ctx, state) })
}

// sumParts makes requests until there is no more to do, and returns the sum of what they did. Each
// is given the sum so far.
func sumParts(request func(sum int64) (int64, bool, error)) (sum int64, err error) {
	for more := true; more && err == nil; {
		var part int64
		part, more, err = request(sum)
		sum += part
	}
	return sum, err
}

// PurgePart is one request of a Purge, for callers that show progress. If more is true, call it
// again.
func (q *Queue) PurgePart(ctx context.Context, state State) (n int64, more bool, err error) {
	payload := subjects.EncodePurge(state)
	purged, err := query(ctx, q, subjects.Purge, payload, subjects.ParseReply[subjects.Purged])
	return purged.Purged, purged.More, err
}

// Redrive sends up to max dead letters of this queue, 1,000 if max is 0, back to the queues they
// came from, and returns their number. There they are at the end of their priority; the ids of the
// jobs stay the same. Redrive sends as many requests as it takes. With an error, it returns how
// many are known to be back.
//
// Errors: as for any request.
func (q *Queue) Redrive(ctx context.Context, max int) (n int64, err error) {
	max = cmp.Or(max, subjects.DefaultRedrive)
	return sumParts(func(sum int64) (int64, bool, error) {
		return q.RedrivePart(ctx, max-int(sum))
	})
}

// RedrivePart is one request of a Redrive, for callers that show progress. If more is true, call it
// again for the rest.
func (q *Queue) RedrivePart(ctx context.Context, max int) (n int64, more bool, err error) {
	payload := subjects.ItemOptions{Most: max}.Encode(subjects.Redrive)
	parse := subjects.ParseReply[subjects.Redriven]
	redriven, err := query(ctx, q, subjects.Redrive, payload, parse)
	return redriven.Redriven, redriven.More, err
}

// ListPriorityQueues returns the priority queues that have items or settings and come after a name,
// "" for the first. It returns up to limit queues, 1 to 1,000; 0 means 1,000. To get the next page,
// call it with Next of the page before, until that is nil: a page may have few queues or none
// although there are more.
//
// Errors: [ErrBadRequest], and the errors of any request.
func (c *Client) ListPriorityQueues(ctx context.Context, after string,
	limit int) (subjects.QueueList, error) {
	return c.list(ctx, subjects.Priority, after, limit)
}

// ListFIFOQueues is ListPriorityQueues for FIFO queues.
func (c *Client) ListFIFOQueues(
	ctx context.Context, after string, limit int,
) (subjects.QueueList, error) {
	return c.list(ctx, subjects.FIFO, after, limit)
}

func (c *Client) list(ctx context.Context, kind subjects.Kind, after string,
	limit int) (subjects.QueueList, error) {
	all := &Queue{client: c, kind: kind}
	payload := subjects.ListOptions{After: after, Limit: limit}.Encode()
	return query(ctx, all, subjects.List, payload, subjects.ParseReply[subjects.QueueList])
}
