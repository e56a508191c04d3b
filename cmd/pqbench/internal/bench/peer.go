package bench

import (
	"context"
	"sync/atomic"
)

// Peer is another program that keeps queues, which the service is compared with.
type Peer struct {
	Name string
	// Missing says what is not installed; empty if the peer can start.
	Missing string
	// Choice says how the clients use the peer: client library, connections, pipelining,
	// commands.
	Choice string
	// Notes say what a reader of the numbers must know about the peer's durability and order.
	Notes string
	// Relaxed is whether the server can be started so that it does not sync, to fill its queue
	// quickly.
	Relaxed bool
	// Start starts the server with its data in dir, which may have the data of an earlier
	// start. Unless relaxed, the server syncs the disk before it answers.
	Start func(ctx context.Context, dir string, relaxed bool) (PeerServer, error)
}

// PeerServer is a running server of a peer.
type PeerServer interface {
	Version() string
	// Connect returns clients of a queue that is meant for that many priorities, from 0, the
	// most urgent. Those of one call may share connections.
	Connect(ctx context.Context, clients, connections, priorities int) ([]*PeerClient, error)
	// Stop disconnects all clients and stops the server. It leaves the data.
	Stop()
}

// PeerItem is an item to push.
type PeerItem struct {
	Priority int
	Value    []byte
}

// PeerClient is one client, used by one goroutine at a time. What the peer does not have is nil.
// Operations that find no item return ErrEmpty.
type PeerClient struct {
	// Push returns when the item is on disk.
	Push func(ctx context.Context, item PeerItem) error
	// Pop removes an item and returns its value.
	Pop func(ctx context.Context) ([]byte, error)
	// Work reserves an item, acknowledges it, and returns its value. A worker that dies between
	// the two leaves the item to others.
	Work func(ctx context.Context) ([]byte, error)
	// PushMany, PopMany and WorkMany do the same with several items at once. The last two return
	// how many items there were.
	PushMany          func(ctx context.Context, items []PeerItem) error
	PopMany, WorkMany func(ctx context.Context, n int) (int, error)
	// Rest, if not nil, is called at the end of a turn: the client gives back items that it was
	// sent and did not ask for yet.
	Rest func() error
}

// peerLoads returns the operations of the clients by the names of their rows. Pushes cycle
// through the priorities.
func peerLoads(clients []*PeerClient, payload, priorities int) map[string]load {
	var pushed atomic.Int64
	value := newValue(payload)
	item := func() PeerItem {
		return PeerItem{Priority: int(pushed.Add(1) % int64(priorities)), Value: value}
	}
	loads := map[string]load{}
	add := func(name string, has bool, do func(context.Context, *PeerClient) (int, error)) {
		if !has {
			return
		}
		var all actors
		for _, c := range clients {
			a := actor{do: func(ctx context.Context, _ int) (int, error) { return do(ctx, c) }}
			if c.Rest != nil {
				a.end = func(context.Context) error { return c.Rest() }
			}
			all = append(all, a)
		}
		loads[name] = all
	}

	first := clients[0]
	add(rowPush, first.Push != nil, func(ctx context.Context, c *PeerClient) (int, error) {
		return 1, c.Push(ctx, item())
	})
	add(rowPop, first.Pop != nil, func(ctx context.Context, c *PeerClient) (int, error) {
		_, err := c.Pop(ctx)
		return 1, err
	})
	add(rowWork, first.Work != nil, func(ctx context.Context, c *PeerClient) (int, error) {
		_, err := c.Work(ctx)
		return 1, err
	})
	add(rowPushMany, first.PushMany != nil, func(ctx context.Context, c *PeerClient) (int, error) {
		items := make([]PeerItem, batchItems)
		for i := range items {
			items[i] = item()
		}
		return batchItems, c.PushMany(ctx, items)
	})
	add(rowPopMany, first.PopMany != nil, func(ctx context.Context, c *PeerClient) (int, error) {
		return c.PopMany(ctx, batchItems)
	})
	add(rowWorkMany, first.WorkMany != nil, func(ctx context.Context, c *PeerClient) (int, error) {
		return c.WorkMany(ctx, batchItems)
	})
	return loads
}
