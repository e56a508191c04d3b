package sources

import (
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// inbox collects the messages of the next batch while one commits. Beyond what a batch may have it
// blocks whoever delivers, and so the pull requests.
type inbox struct {
	arrived chan struct{} // has an element if there may be messages

	mu     sync.Mutex
	room   sync.Cond
	list   []jetstream.Msg
	bytes  int
	closed bool
}

// A batch has up to about this much.
const (
	maxMessages = 1000
	maxBytes    = 1 << 20
)

func newInbox() *inbox {
	in := &inbox{arrived: make(chan struct{}, 1)}
	in.room.L = &in.mu
	return in
}

// put is a jetstream.MessageHandler.
func (in *inbox) put(m jetstream.Msg) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for !in.closed && (len(in.list) >= maxMessages || in.bytes >= maxBytes) {
		in.room.Wait()
	}
	in.list = append(in.list, m)
	in.bytes += len(m.Data())
	select {
	case in.arrived <- struct{}{}:
	default:
	}
}

// take returns all messages.
func (in *inbox) take() []jetstream.Msg {
	in.mu.Lock()
	defer in.mu.Unlock()
	list := in.list
	in.list, in.bytes = nil, 0
	in.room.Broadcast()
	return list
}

// close lets nobody wait any more.
func (in *inbox) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	in.room.Broadcast()
}
