package fdbpq

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
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

// name returns the queue's name in its Keyspace, "" outside of one.
func (l *layout) name() string {
	if l.list == nil {
		return ""
	}
	name, _, _ := tuple.DecodeString([]byte(l.prefix[len(l.list.root):])) // packed by layoutOf
	return name
}

// deadLetters returns the dead-letter queue; named is what settings say.
func (l *layout) deadLetters(named string) *layout {
	dead := &layout{list: l.list, fifo: l.fifo, format: l.format}
	if l.list == nil {
		dead.prefix = string(l.key(kindDead, 0))
		return dead
	}
	if named == "" || named == l.name() {
		named = deadLetterName(l.name())
	}
	dead.prefix = string(tuple.AppendString([]byte(l.list.root), named))
	return dead
}

// checkDeadLetter returns what is wrong with the name of a dead-letter queue, "" if it is not set.
func (l *layout) checkDeadLetter(name string) error {
	switch {
	case name == "":
		return nil
	case l.list == nil:
		return fmt.Errorf("%.130q: a queue outside a Keyspace has its dead letters in its own subspace: want none", name)
	case len(name) > MaxQueueName:
		return fmt.Errorf("a name of %d bytes: want at most %d", len(name), MaxQueueName)
	case name == l.name():
		return fmt.Errorf("%.130q is the queue itself: want another one", name)
	}
	return nil
}

// cleanText makes a client's text fit for a header: valid UTF-8 without control characters, cut at n
// bytes.
func cleanText(text string, n int) string {
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

// burials moves items to dead-letter queues in one transaction.
type burials struct {
	tx     kv.Transaction
	now    time.Time
	known  *known
	queues map[string]*deadQueue // by prefix
	count  int64                 // of dead letters
}

// deadQueue is a dead-letter queue of a transaction.
type deadQueue struct {
	ledger ledger
	last   map[int64]lastItems // being read, by priority
	next   map[int64]int64     // the next count
	buried map[ID]struct{}
}

// burial is an item that is to be buried, being read.
type burial struct {
	wholeItem
	from *ledger
	to   *deadQueue
}

// begin starts to read what it takes to bury an item.
func (b *burials) begin(from *ledger, id *ID, s *Settings) *burial {
	to := b.target(from.l.deadLetters(s.DeadLetter), id.Priority)
	return &burial{wholeItem: from.l.beginWhole(b.tx, id), from: from, to: to}
}

// target returns the queue that items of a priority move to, whose next count it starts to read.
func (b *burials) target(l *layout, priority int64) *deadQueue {
	to := b.queues[l.prefix]
	if to == nil {
		to = &deadQueue{
			ledger: ledger{tx: b.tx, l: l, now: b.now, facts: b.known.queue(l)}, last: map[int64]lastItems{}, next: map[int64]int64{}, buried: map[ID]struct{}{},
		}
		if b.queues == nil {
			b.queues = map[string]*deadQueue{}
		}
		b.queues[l.prefix] = to
		to.ledger.beginSettings()
	}
	if _, begun := to.last[priority]; !begun {
		to.last[priority] = l.readLast(b.tx.Snapshot(), priority)
	}
	return to
}

// loadNext waits for the next count of a priority.
func (to *deadQueue) loadNext(priority int64) error {
	if _, known := to.next[priority]; known {
		return nil
	}
	next, err := to.ledger.l.nextCount(to.last[priority])
	if err == nil {
		to.next[priority] = next
	}
	return err
}

// takeNext returns the next count of a priority, and counts on.
func (to *deadQueue) takeNext(priority int64) int64 {
	count := to.next[priority]
	to.next[priority] = following(count)
	return count
}

// load waits for what begin started, and for the count that the item gets. With rest it also
// reads the rest of a large item; without, the caller must not bury one. The error wraps
// ErrCorrupt if the item cannot be buried, or is one of the store.
func (p *burial) load(h *held, rest bool) error {
	if err := p.wholeItem.load(p.from, &h.id, h.value, rest); err != nil || p.large && !rest {
		return err
	}
	return p.to.loadNext(h.id.Priority)
}

// size is about how many bytes burying a loaded item takes in the transaction.
func (p *burial) size() int { return p.item.item.Message.Size() + deadLetterSize }

// deadLetterSize is about the most bytes that a DeadLetter and its keys take.
const deadLetterSize = 4000

// bury adds a loaded item to its dead-letter queue. The caller has removed it from its own.
func (b *burials) bury(p *burial, h *held, reason string) {
	if p.from.l.list != nil {
		p.to.ledger.l.addToList(b.tx, b.now)
	}
	pushed := h.id.pushedAt()
	if pushed.IsZero() { // another program wrote it
		pushed = b.now
	}
	count := p.to.takeNext(h.id.Priority)
	m := p.item.item.Message
	m.MsgID, m.Unique, m.Expires = "", "", time.Time{}
	m.DeadLetter = &DeadLetter{Queue: p.from.l.name(), Reason: reason, At: micros(b.now), Deliveries: h.deliveries, Error: h.reason}
	id := newID(h.id.Priority, count, pushed, uniqueBytes(1), true)
	p.to.ledger.add(&id, &m)
	b.count++
	p.to.buried[id] = struct{}{}
}

// flush writes the counters of the dead-letter queues.
func (b *burials) flush() error {
	for _, to := range b.queues {
		if err := to.ledger.flush(); err != nil {
			return err
		}
	}
	return nil
}

// owns reports whether this transaction has buried the item in the queue.
func (b *burials) owns(l *layout, id *ID) bool {
	to := b.queues[l.prefix]
	if to == nil {
		return false
	}
	_, owns := to.buried[*id]
	return owns
}

// QueueName names a queue of a Keyspace.
type QueueName struct {
	FIFO bool
	Name string
}

// reached returns the queues of the Keyspace that got items.
func (b *burials) reached() (names []QueueName) {
	for _, to := range b.queues {
		if len(to.buried) > 0 {
			names = to.ledger.l.appendName(names)
		}
	}
	return names
}

// appendName appends the name of the queue, if it is in a Keyspace.
func (l *layout) appendName(names []QueueName) []QueueName {
	if l.list == nil {
		return names
	}
	return append(names, QueueName{l.fifo, l.name()})
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
