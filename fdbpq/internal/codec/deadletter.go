package codec

import (
	"fmt"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// An item that is given up, by OpTerm or after the last of Settings.MaxDeliver deliveries, moves to
// a dead-letter queue in the same transaction. There it is at the end of its priority, at a new
// place and with a DeadLetter. It keeps the id of its job, its push time, value and headers, and
// loses its message id and unique key.
//
// In a Keyspace, Settings.DeadLetter names the dead-letter queue; otherwise it is the queue with
// "-dead" appended to its name. A queue outside a Keyspace has no name, so its dead-letter queue is
// inside its own subspace, in ("dead"). Dead-letter queues have settings and dead-letter queues of
// their own.

// DeadLetters returns the dead-letter queue; named is Settings.DeadLetter.
func (l *Layout) DeadLetters(named string) *Layout {
	if l.List == nil {
		return l.sibling(string(l.Key(kindDead, 0)))
	}
	set := settings.Settings{DeadLetter: named}
	return l.named(set.DeadLetterQueue(l.Name()))
}

// Home returns the queue that a dead letter in this queue came from, nil if there cannot be one.
func (l *Layout) Home(d *DeadLetter) *Layout {
	if l.List == nil {
		prefix, found := strings.CutSuffix(l.Prefix, string(tuple.AppendString(nil, kindDead)))
		if !found || d.Queue != "" {
			return nil
		}
		return l.sibling(prefix)
	}

	if d.Queue == "" || len(d.Queue) > MaxQueueName || d.Queue == l.Name() {
		return nil
	}
	return l.named(d.Queue)
}

// named returns another queue of the Keyspace.
func (l *Layout) named(name string) *Layout {
	return l.sibling(string(tuple.AppendString([]byte(l.List.root), name)))
}

// sibling returns a queue of the same kind with another prefix.
func (l *Layout) sibling(prefix string) *Layout {
	return &Layout{Prefix: prefix, List: l.List, Fifo: l.Fifo, Format: l.Format}
}

// checkDeadLetter returns an error for a bad name of a dead-letter queue; "" is not set.
func (l *Layout) checkDeadLetter(name string) error {
	switch {
	case name == "":
		return nil
	case l.List == nil:
		return fmt.Errorf("%.130q: a queue outside a Keyspace has its dead letters in its own "+
			"subspace: want none", name)
	case len(name) > MaxQueueName:
		return fmt.Errorf("a name of %d bytes: want at most %d", len(name), MaxQueueName)
	case name == l.Name():
		return fmt.Errorf("%.130q is the queue itself: want another one", name)
	}
	return nil
}

// DeadLetterSize is about the most bytes that a DeadLetter and its keys take.
const DeadLetterSize = 4000

// append appends a DeadLetter as the ("m") keys have it.
func (d *DeadLetter) append(b []byte) []byte {
	b = tuple.AppendBytes(tuple.AppendStart(b), []byte(d.Queue))
	b = tuple.AppendBytes(b, []byte(d.Reason))
	b = appendInts(b, d.At.UnixMicro(), d.Deliveries)
	return tuple.AppendEnd(tuple.AppendBytes(b, []byte(d.Error)))
}

// parseDeadLetter reads what append wrote.
func parseDeadLetter(from *decoder) *DeadLetter {
	from.start()
	d := &DeadLetter{Queue: string(from.bytes()), Reason: string(from.bytes()), At: from.time()}
	d.Deliveries, d.Error = from.int(), string(from.bytes())
	for !from.ended() {
		from.skip()
	}
	return d
}

// DeadLetter says how an item came into a dead-letter queue.
type DeadLetter struct {
	// Queue is the name of the queue that the item came from, the first one if it died as a dead
	// letter again; "" outside a Keyspace.
	Queue string
	// Reason is ReasonMaxDeliver, ReasonTerminated, or the reason that OpTerm gave.
	Reason string
	// At is when the item was moved, to the microsecond.
	At time.Time
	// Deliveries is how many deliveries the item had.
	Deliveries int64
	// Error is the reason of the last negative acknowledgement with one.
	Error string
}

// ReasonMaxDeliver is the reason of a dead letter that has had its last delivery.
const ReasonMaxDeliver = "max_deliver"

// size is about how many bytes a DeadLetter takes in a transaction; 0 for nil.
func (d *DeadLetter) size() int {
	if d == nil {
		return 0
	}
	return textSize(d.Queue) + textSize(d.Reason) + textSize(d.Error) + 32
}
