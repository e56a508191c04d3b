package client

import (
	"cmp"
	"context"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// Len returns the number of ready items, which excludes leased and delayed ones. It does not count
// items that other programs than bridges and package fdbpq wrote to the store.
func (q *handle) Len(ctx context.Context) (int64, error) {
	return query(ctx, q, subjects.Len, nil, func(data []byte) (int64, error) {
		length, err := subjects.ParseReply[subjects.Length](data)
		if err != nil || length.Queue == "" {
			return 0, fmt.Errorf("%.64q", data)
		}
		return length.Len, nil
	})
}

// PriorityCount is the number of ready items of one priority:
//
//	Priority int64
//	Count    int64
type PriorityCount = subjects.PriorityCount

// GroupCount is the number of items of one group:
//
//	Ready  int64
//	Leased int64
type GroupCount = subjects.GroupCount

// QueueConsumer is a consumer that a program written for JetStream has created on the queue:
//
//	Name              string
//	Order             string        // "min" or "max": the end that it takes items from
//	AckWait           time.Duration // length of its leases; 0: the setting of the queue
//	MaxDeliver        int           // deliveries before an item is a dead letter; 0: the setting
//	MaxAckPending     int           // items that may be leased through it at a time; 0: no limit
//	InactiveThreshold time.Duration // after which it is removed if nobody pulls; 0: never
//	Created           time.Time
//	Description       string        // or its start
type QueueConsumer = subjects.QueueConsumer

// QueueInfo says how many items of a queue are in each state, and more:
//
//	Queue          string
//	Ready          int64
//	Leased         int64
//	Delayed        int64
//	Priorities     []PriorityCount // ready items of each priority, in order; nil in a FIFO queue
//	PrioritiesMore bool            // there are more, between the smallest and the largest
//	Groups         map[string]GroupCount // items of each group, nil without groups
//	GroupsMore     bool            // there are more groups; those with the most items are shown
//	GroupsAtLimit  int             // with ready items that pops skip: at a limit or paused
//	OldestAge      *time.Duration  // since the push of the oldest ready item, nil without one
//	NextDue        *time.Time      // when something next falls due, nil if nothing will
//	Settings       Settings        // those that are set
//	Consumers      []QueueConsumer // created by JetStream's programs; nil if there are none
//	Source         *settings.SourceState // how far its source is drawn, nil without one
type QueueInfo = subjects.QueueInfo

// Info returns the number of items in each state, and more. It does not count items that other
// programs wrote to the store with the bare recipe.
//
// Errors: those that every call can return.
func (q *handle) Info(ctx context.Context) (*QueueInfo, error) {
	return query(ctx, q, subjects.Info, nil, subjects.ParseQueueInfo)
}

// Settings are the settings of a queue. Fields that are zero are not set:
//
//	AckWait           time.Duration   // length of leases, 100 ms to 12 h; default 30 s
//	Backoff           []time.Duration // before each further delivery, up to 100; default none
//	MaxDeliver        int64           // deliveries before a dead letter; default no limit
//	DeadLetter        string          // the dead-letter queue; default the name and "-dead"
//	TTL               time.Duration   // after which items expire; default never
//	PauseUntil        time.Time       // when pops and leases go on; default and past: not paused
//	MaxLeased         int64           // items that may be leased at a time; default no limit
//	MaxItems          int64           // items in the queue after a push; default no limit
//	MaxBytes          int64           // of values and headers after a push; default no limit
//	Discard           string          // beyond these, "new" refuses pushes; "old" makes room
//	DuplicateWindow   time.Duration   // how long message ids are remembered; default two minutes
//	MaxLeasedPerGroup int64           // items of a group leased at a time; default no limit
//	Rate              string          // of deliveries, such as "10/1s"; default no limit
//	RatePerGroup      string          // of deliveries of each group; default no limit
//	Source            string          // JSON of the stream to draw from; default none
//	PausedGroups      []string        // whose items pops and leases pass over; default none
type Settings = settings.Settings

// Settings returns the settings of the queue. It asks for an Info, so it needs no right to change
// them.
//
// Errors: those that every call can return.
func (q *handle) Settings(ctx context.Context) (Settings, error) {
	info, err := q.Info(ctx)
	if err != nil {
		return Settings{}, err
	}
	return info.Settings, nil
}

// Configure sets the settings that change has, resets those that are named, and returns all
// settings of the queue. They are in force on every bridge once it returns.
//
//	now, err := jobs.Configure(ctx, client.Settings{AckWait: time.Minute}, "backoff", "rate")
//
// Errors: [ErrBadRequest], with a text that names the setting, and nothing was changed; and those
// that every call can return. It does no harm to call it again.
func (q *handle) Configure(ctx context.Context, change Settings,
	reset ...string) (Settings, error) {
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
// Errors: those of Configure.
func (q *handle) ChangeSettings(ctx context.Context, c *subjects.Change) (Settings, error) {
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
// Errors: those that every call can return.
func (q *handle) Purge(ctx context.Context, state State) (n int64, err error) {
	for more := true; more && err == nil; {
		var part int64
		part, more, err = q.PurgePart(ctx, state)
		n += part
	}
	return n, err
}

// PurgePart is one request of a Purge, for callers that show progress. If more is true, call it
// again.
func (q *handle) PurgePart(ctx context.Context, state State) (n int64, more bool, err error) {
	payload := subjects.EncodePurge(state)
	purged, err := query(ctx, q, subjects.Purge, payload, subjects.ParseReply[subjects.Purged])
	return purged.Purged, purged.More, err
}

// Redrive sends up to max dead letters of this queue, 1,000 if max is 0, back to the queues they
// came from, and returns their number. There they have new ids, and are at the end of their
// priority. Redrive sends as many requests as it takes. With an error, it returns how many are
// known to be back.
//
// Errors: those that every call can return.
func (q *handle) Redrive(ctx context.Context, max int) (n int64, err error) {
	max = cmp.Or(max, subjects.DefaultRedrive)
	for more := true; more && err == nil; {
		var part int64
		part, more, err = q.RedrivePart(ctx, max-int(n))
		n += part
	}
	return n, err
}

// RedrivePart is one request of a Redrive, for callers that show progress. If more is true, call it
// again for the rest.
func (q *handle) RedrivePart(ctx context.Context, max int) (n int64, more bool, err error) {
	payload := subjects.ItemOptions{Most: max}.Encode(subjects.Redrive)
	parse := subjects.ParseReply[subjects.Redriven]
	redriven, err := query(ctx, q, subjects.Redrive, payload, parse)
	return redriven.Redriven, redriven.More, err
}

// QueueList is a page of the list of queues, sorted by name:
//
//	Queues []subjects.QueueCounts // each with Queue, its name, and Ready, Leased and Delayed
//	Next   *string                // after which the next page begins, nil after the last
type QueueList = subjects.QueueList

// ListPriorityQueues returns the priority queues that have items or settings and come after a name,
// "" for the first. It returns up to limit queues, 1 to 1,000; 0 means 1,000. To get the next page,
// call it with QueueList.Next.
//
// Errors: [ErrBadRequest], and those that every call can return.
func (c *Client) ListPriorityQueues(ctx context.Context, after string,
	limit int) (QueueList, error) {
	return c.list(ctx, subjects.Priority, after, limit)
}

// ListQueues is ListPriorityQueues for FIFO queues.
func (c *Client) ListQueues(ctx context.Context, after string, limit int) (QueueList, error) {
	return c.list(ctx, subjects.FIFO, after, limit)
}

func (c *Client) list(ctx context.Context, kind subjects.Kind, after string,
	limit int) (QueueList, error) {
	all := &handle{client: c, kind: kind}
	payload := subjects.ListOptions{After: after, Limit: limit}.Encode()
	return query(ctx, all, subjects.List, payload, subjects.ParseReply[subjects.QueueList])
}
