package client

import (
	"cmp"
	"context"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// Len returns the number of ready items, so without those that are leased or delayed. Items written
// by other programs than bridges and package fdbpq do not count.
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

// QueueConsumer is a consumer that a program written for JetStream has created, to take items of the
// queue:
//
//	Name              string
//	Order             string        // "min" or "max": where it begins
//	AckWait           time.Duration // of its leases; 0, that of the settings
//	MaxDeliver        int           // deliveries after which it gives an item up; 0, no limit of its own
//	MaxAckPending     int           // items that it may have outstanding; 0, no limit
//	InactiveThreshold time.Duration // after which it goes if nobody pulls; 0, never
//	Created           time.Time
//	Description       string        // or its beginning
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
//	GroupsAtLimit  int             // groups with ready items that are passed over because of a limit
//	OldestAge      *time.Duration  // since the push of the oldest ready item, nil if there is none
//	NextDue        *time.Time      // when the next thing falls due, nil if nothing will
//	Settings       Settings        // that are set
//	Consumers      []QueueConsumer // that JetStream's programs have created; nil without any
//	Source         *settings.SourceState // how far its source is drawn, nil without one
type QueueInfo = subjects.QueueInfo

// Info returns how many items of the queue are in each state, and more. Items that other programs
// wrote with the bare recipe are not counted.
func (q *handle) Info(ctx context.Context) (*QueueInfo, error) {
	return query(ctx, q, subjects.Info, nil, subjects.ParseQueueInfo)
}

// Settings are the settings of a queue. Fields that are zero are not set:
//
//	AckWait         time.Duration   // of leases, 100 ms to 12 h; not set, 30 s
//	Backoff         []time.Duration // before each further delivery, up to 100 of them; not set, none
//	MaxDeliver      int64           // deliveries before an item is a dead letter; not set, no limit
//	DeadLetter      string          // the dead-letter queue; not set, the name with "-dead" appended
//	TTL             time.Duration   // after which items expire; not set, never
//	PauseUntil      time.Time       // when pops and leases go on; not set or past, they are not paused
//	MaxLeased       int64           // items that may be leased at a time; not set, no limit
//	MaxItems        int64           // items in the queue after a push; not set, no limit
//	MaxBytes        int64           // bytes of values and headers after a push; not set, no limit
//	Discard         string          // "new" refuses pushes beyond these limits; "old" makes room
//	DuplicateWindow time.Duration   // how long message ids are remembered; not set, two minutes
//	MaxLeasedPerGroup int64         // items of a group that may be leased at a time; not set, no limit
//	Rate            string          // deliveries, such as "10/1s"; not set, no limit
//	RatePerGroup    string          // deliveries of each group; not set, no limit
//	Source          string          // JSON of the stream that it draws from; not set, none
type Settings = settings.Settings

// Settings returns the settings of the queue: those of Info, so it needs no right to change them.
func (q *handle) Settings(ctx context.Context) (Settings, error) {
	info, err := q.Info(ctx)
	if err != nil {
		return Settings{}, err
	}
	return info.Settings, nil
}

// Configure sets those settings of the queue that change has, resets those that are only named, and
// returns all that it has then. They are in force on every bridge once it returns.
//
//	now, err := jobs.Configure(ctx, client.Settings{AckWait: time.Minute}, "backoff", "max_deliver")
//
// Errors: [ErrBadRequest], with a text that names the setting: nothing was changed. And those that
// every call can return. After any other error, configure again: that does no harm.
func (q *handle) Configure(ctx context.Context, change Settings, reset ...string) (Settings, error) {
	payload := (&subjects.Change{Settings: change, Reset: reset}).Encode()
	s, err := query(ctx, q, subjects.Config, payload, subjects.ParseSettings)
	if err != nil {
		return Settings{}, err
	}
	return *s, nil
}

// Purge removes all items, at once, or those in a state, with as many requests as it takes, and
// returns how many that were. An item that changes its state meanwhile may stay. With an error, it
// returns how many items are known to be gone.
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

// PurgePart is one request of a Purge, for callers that show progress. If more, go on with
// the next.
func (q *handle) PurgePart(ctx context.Context, state State) (n int64, more bool, err error) {
	payload := subjects.EncodePurge(state)
	purged, err := query(ctx, q, subjects.Purge, payload, subjects.ParseReply[subjects.Purged])
	return purged.Purged, purged.More, err
}

// Redrive sends up to max dead letters of this queue, 1,000 if it is 0, back to the queues that
// they were in, and returns how many that were. They are pushed again: with a new id, at the end of
// their priority. Otherwise it is as Purge.
func (q *handle) Redrive(ctx context.Context, max int) (n int64, err error) {
	max = cmp.Or(max, subjects.DefaultRedrive)
	for more := true; more && err == nil; {
		var part int64
		part, more, err = q.RedrivePart(ctx, max-int(n))
		n += part
	}
	return n, err
}

// RedrivePart is to Redrive what PurgePart is to Purge.
func (q *handle) RedrivePart(ctx context.Context, max int) (n int64, more bool, err error) {
	payload := subjects.ItemOptions{Most: max}.Encode(subjects.Redrive)
	redriven, err := query(ctx, q, subjects.Redrive, payload, subjects.ParseReply[subjects.Redriven])
	return redriven.Redriven, redriven.More, err
}

// QueueList is a page of the list of queues, sorted by name.
type QueueList = subjects.QueueList

// ListPriorityQueues returns up to limit priority queues that have items or settings, 1 to 1,000,
// or 1,000 if it is 0: those that come after the given name, "" for the first. QueueList.Next is
// where the next page begins.
//
// Errors: [ErrBadRequest], and those that every call can return.
func (c *Client) ListPriorityQueues(ctx context.Context, after string, limit int) (QueueList, error) {
	return c.list(ctx, subjects.Priority, after, limit)
}

// ListQueues is ListPriorityQueues for FIFO queues.
func (c *Client) ListQueues(ctx context.Context, after string, limit int) (QueueList, error) {
	return c.list(ctx, subjects.FIFO, after, limit)
}

func (c *Client) list(ctx context.Context, kind subjects.Kind, after string, limit int) (QueueList, error) {
	payload := subjects.ListOptions{After: after, Limit: limit}.Encode()
	return query(ctx, &handle{client: c, kind: kind}, subjects.List, payload, subjects.ParseReply[subjects.QueueList])
}
