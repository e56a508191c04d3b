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

// Sizes says with how many items a client can do something in one request.
type Sizes uint8

// One item, many, or both.
const (
	One Sizes = 1 << iota
	Many
)

// PeerClient is one client, used by one goroutine at a time. Operations that find no item return
// ErrEmpty.
type PeerClient struct {
	// Push returns when the items are on disk.
	Push func(ctx context.Context, items []PeerItem) error
	// Pop removes at most n items and returns their values.
	Pop func(ctx context.Context, n int) ([][]byte, error)
	// Work reserves at most n items, acknowledges them, and returns their values. A worker that
	// dies between the two leaves the items to others.
	Work func(ctx context.Context, n int) ([][]byte, error)
	// Pushes, Pops and Works say what the peer has.
	Pushes, Pops, Works Sizes
	// Rest, if not nil, is called at the end of a turn: the client gives back items that it was
	// sent and did not ask for yet.
	Rest func() error
}

// Rows of a comparison with peers, in the order of their turns.
const (
	rowPushEach = "push, a request each" // the service's only, as the next three
	rowPopEach  = "pop, a request each"
	rowWorkEach = "work, two requests each"
	rowWorkNext = "work, a request each"
	rowPop      = "pop"
	rowWork     = "work"
	rowPushMany = "push 100"
	rowPopMany  = "pop 100"
	rowWorkMany = "work 100"
	rowOrder    = "order" // what was found out about the queue besides
)

var peerRows = []string{
	rowPush, rowPushEach, rowPushMany, rowPop, rowPopEach,
	rowWork, rowWorkNext, rowWorkEach, rowPopMany, rowWorkMany,
}

// pushes reports whether a row adds items.
func pushes(row string) bool { return row == rowPush || row == rowPushEach || row == rowPushMany }

// peerLoads returns the operations of the clients by the names of their rows. Pushes cycle
// through the priorities.
func peerLoads(clients []*PeerClient, payload, priorities int) map[string]load {
	loads := map[string]load{}
	add := func(names [2]string, has Sizes, do func(ctx context.Context, c *PeerClient, n int) (int, error)) {
		for i, n := range []int{1, batchItems} {
			if has&(One<<i) == 0 {
				continue
			}
			var all actors
			for _, c := range clients {
				a := actor{do: func(ctx context.Context, _ int) (int, error) { return do(ctx, c, n) }}
				if c.Rest != nil {
					a.end = func(context.Context) error { return c.Rest() }
				}
				all = append(all, a)
			}
			loads[names[i]] = all
		}
	}

	var pushed atomic.Int64
	value := newValue(payload)
	first := clients[0]
	add([2]string{rowPush, rowPushMany}, first.Pushes, func(ctx context.Context, c *PeerClient, n int) (int, error) {
		items := make([]PeerItem, n)
		for i := range items {
			items[i] = PeerItem{Priority: int(pushed.Add(1) % int64(priorities)), Value: value}
		}
		return n, c.Push(ctx, items)
	})
	add([2]string{rowPop, rowPopMany}, first.Pops, func(ctx context.Context, c *PeerClient, n int) (int, error) {
		values, err := c.Pop(ctx, n)
		return len(values), err
	})
	add([2]string{rowWork, rowWorkMany}, first.Works, func(ctx context.Context, c *PeerClient, n int) (int, error) {
		values, err := c.Work(ctx, n)
		return len(values), err
	})
	return loads
}
