package codec

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// An item that is given up on, because of OpTerm or after the last of Settings.MaxDeliver
// deliveries, moves to a dead-letter queue in the same transaction. There it is a new item at the end of
// its priority: with a new id, but the same push time, value and headers, and a DeadLetter. It has no
// message id and no unique key any more.
//
// In a Keyspace the dead-letter queue is the one that Settings.DeadLetter names. If that is not set, it
// is the queue with "-dead" appended to its name. A queue outside a Keyspace has no name that
// another could be derived from, so its dead-letter queue is inside its own subspace, in
// ("dead"). Both have their settings and dead-letter queues as any other queue.

// DeadLetter says how an item came into a dead-letter queue.
type DeadLetter struct {
	// Queue is the name of the queue that the item was in; "" if that is outside a Keyspace.
	Queue string
	// Reason is ReasonMaxDeliver, ReasonTerminated, or what OpTerm gave.
	Reason string
	// At is when the item was moved, to the microsecond.
	At time.Time
	// Deliveries is how many deliveries the item had.
	Deliveries int64
	// Error is the reason of the last negative acknowledgement that gave one.
	Error string
}

// Reasons of dead letters.
const (
	ReasonMaxDeliver = "max_deliver"
	ReasonTerminated = "terminated"
)

// Longest texts that are kept, in bytes. The rest of a longer one is cut off.
const (
	MaxTermReason = 256
	MaxNakReason  = 1024
)

// deadSuffix makes the name of a dead-letter queue from that of its queue.
const deadSuffix = "-dead"

// deadLetterName is the name of the dead-letter queue unless settings say otherwise. A long name
// gets the suffix in place of its end, as often as it takes to make another name.
func deadLetterName(name string) string {
	for suffix := deadSuffix; len(suffix) < MaxQueueName; suffix += deadSuffix {
		if dead := cutText(name, MaxQueueName-len(suffix)) + suffix; dead != name {
			return dead
		}
	}
	return strings.TrimPrefix(deadSuffix, "-") // name is little else than suffixes
}

// Name returns the queue's name in its Keyspace, "" outside of one.
func (l *Layout) Name() string {
	if l.List == nil {
		return ""
	}
	name, _, _ := tuple.DecodeString([]byte(l.Prefix[len(l.List.root):])) // packed by LayoutOf
	return name
}

// DeadLetters returns the dead-letter queue; named is what settings say.
func (l *Layout) DeadLetters(named string) *Layout {
	dead := &Layout{List: l.List, Fifo: l.Fifo, Format: l.Format}
	if l.List == nil {
		dead.Prefix = string(l.Key(kindDead, 0))
		return dead
	}
	if named == "" || named == l.Name() {
		named = deadLetterName(l.Name())
	}
	dead.Prefix = string(tuple.AppendString([]byte(l.List.root), named))
	return dead
}

// checkDeadLetter returns what is wrong with the name of a dead-letter queue, "" if it is not set.
func (l *Layout) checkDeadLetter(name string) error {
	switch {
	case name == "":
		return nil
	case l.List == nil:
		return fmt.Errorf("%.130q: a queue outside a Keyspace has its dead letters in its own subspace: want none", name)
	case len(name) > MaxQueueName:
		return fmt.Errorf("a name of %d bytes: want at most %d", len(name), MaxQueueName)
	case name == l.Name():
		return fmt.Errorf("%.130q is the queue itself: want another one", name)
	}
	return nil
}

// CleanText makes a client's text fit for a header: valid UTF-8 without control characters, cut at n
// bytes.
func CleanText(text string, n int) string {
	text = strings.ToValidUTF8(cutText(text, n), "\uFFFD")
	return cutText(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text), n)
}

// cutText cuts a text at n bytes, or before the rune there.
func cutText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for i := n; i > max(n-utf8.UTFMax, 0); i-- {
		if utf8.RuneStart(text[i]) {
			return text[:i]
		}
	}
	return text[:n] // not UTF-8
}

// DeadLetterSize is about the most bytes that a DeadLetter and its keys take.
const DeadLetterSize = 4000

// QueueName names a queue of a Keyspace.
type QueueName struct {
	FIFO bool
	Name string
}

// AppendName appends the name of the queue, if it is in a Keyspace.
func (l *Layout) AppendName(names []QueueName) []QueueName {
	if l.List == nil {
		return names
	}
	return append(names, QueueName{l.Fifo, l.Name()})
}

// encode returns the form of a DeadLetter in the ("m") keys.
func (d *DeadLetter) encode() tuple.Tuple {
	return tuple.Tuple{[]byte(d.Queue), []byte(d.Reason), d.At.UnixMicro(), d.Deliveries, []byte(d.Error)}
}

var errDeadLetter = errors.New("dead letter")

// parseDeadLetter reads what encode wrote.
func parseDeadLetter(from any) (*DeadLetter, error) {
	t, ok := from.(tuple.Tuple)
	if !ok || len(t) < 5 {
		return nil, errDeadLetter
	}
	var queue, reason, text []byte
	var at int64
	d := &DeadLetter{}
	if !element(t[0], &queue) || !element(t[1], &reason) || !element(t[2], &at) || !element(t[3], &d.Deliveries) || !element(t[4], &text) {
		return nil, errDeadLetter
	}
	d.Queue, d.Reason, d.At, d.Error = string(queue), string(reason), time.UnixMicro(at).UTC(), string(text)
	return d, nil
}

// size is about the number of bytes that a DeadLetter takes in a transaction.
func (d *DeadLetter) size() int {
	if d == nil {
		return 0
	}
	return textSize(d.Queue) + textSize(d.Reason) + textSize(d.Error) + 32
}

// Home returns the queue of a dead letter in this dead-letter queue, nil if there cannot be one.
func (l *Layout) Home(d *DeadLetter) *Layout {
	home := &Layout{List: l.List, Fifo: l.Fifo, Format: l.Format}
	if l.List == nil {
		prefix, found := strings.CutSuffix(l.Prefix, string(tuple.AppendString(nil, kindDead)))
		if !found || d.Queue != "" {
			return nil
		}
		home.Prefix = prefix
		return home
	}
	if d.Queue == "" || len(d.Queue) > MaxQueueName || d.Queue == l.Name() {
		return nil
	}
	home.Prefix = string(tuple.AppendString([]byte(l.List.root), d.Queue))
	return home
}
