package fdbpq

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Mark is what Retire leaves in the list at a queue that it found empty.
type Mark string

// NewMark returns a mark that nobody has used.
func NewMark() Mark {
	mark := make([]byte, 16)
	_, _ = rand.Read(mark) // never returns an error: see crypto/rand
	return Mark(mark)
}

// Retired is what Retire did about a queue.
type Retired uint8

const (
	// InUse: the queue has items, or a pop of a Popper is under way. It stays.
	InUse Retired = iota
	// Marked: the queue is empty and has the new mark now.
	Marked
	// NotListed: the queue is not in the list, or not any more.
	NotListed
)

// Retire takes empty queues off the list of queues, in two steps. A queue that
// is empty and has the mark ripe leaves the list, and all its keys are gone; any
// other that is empty is marked with the mark next. ripe must have been next in
// earlier calls only, the last of which returned RetireAfter ago; "" is no mark.
//
// So call it for queues that seem not to be used any more, and again
// RetireAfter later. Queues that are pushed to meanwhile stay, or are listed again
// by the push, and pushes never conflict with it. Items are safe in any case; but a
// push whose transaction is under way for close to RetireAfter may leave its queue
// missing from the list until the next push.
//
// Queues that are in use are only read. The others are written in one
// transaction, so call it for some hundred queues at a time.
//
// The queues must be of one Keyspace, and the result says for each what was done.
// Errors: ErrCorrupt, those of the store, and the context's error. It retries
// until ctx ends, and may be called again after an error, with the same marks.
func Retire(ctx context.Context, db kv.Database, queues []Target, next, ripe Mark) ([]Retired, error) {
	return (&retiring{queues, next, ripe, time.Now}).run(ctx, db)
}

// retiring is a call of Retire.
type retiring struct {
	queues     []Target
	next, ripe Mark
	now        func() time.Time
}

func (r *retiring) run(ctx context.Context, db kv.Database) ([]Retired, error) {
	// Most are in use. To see that takes no writer.
	states, err := kv.ReadTransact(ctx, db, func(reader kv.Reader) ([]emptiness, error) {
		return readEmptiness(reader, r.queues)
	})
	if err != nil {
		return nil, err
	}
	done := make([]Retired, len(r.queues))
	var empty []Target
	var places []int
	for i, state := range states {
		done[i] = state.retired()
		if done[i] == Marked {
			empty = append(empty, r.queues[i])
			places = append(places, i)
		}
	}
	if len(empty) == 0 {
		return done, nil
	}
	again, err := kv.TransactIdempotent(ctx, db, func(tx kv.Transaction) ([]Retired, error) {
		return r.write(tx, empty)
	})
	for i, what := range again {
		done[places[i]] = what
	}
	return done, err
}

// write marks or takes off the list those of the queues that are empty.
func (r *retiring) write(tx kv.Transaction, queues []Target) ([]Retired, error) {
	states, err := readEmptiness(tx, queues)
	if err != nil {
		return nil, err
	}
	done := make([]Retired, len(queues))
	for i, state := range states {
		done[i] = state.retired()
		if done[i] != Marked {
			continue
		}
		mark, err := parseListEntry(state.entry)
		if err != nil {
			return nil, err
		}
		l := queues[i].layout()
		if mark == "" || mark != r.ripe {
			tx.Set(l.listKey(), tuple.Tuple{r.now().UnixMicro(), []byte(r.next)}.Pack())
			continue
		}
		if state.leftovers { // else nothing is there, and to clear that is work for the store
			l.clear(tx)
		}
		tx.Clear(l.listKey())
		done[i] = NotListed
	}
	return done, nil
}

// emptiness is what decides if a queue may leave the list.
type emptiness struct {
	entry []byte // nil if it is not in the list
	used  bool
	// leftovers says that there are numbers of items or parts of messages. They are
	// left behind when a program that knows only the recipe pops, and mean nothing
	// without an item.
	leftovers bool
}

func (e emptiness) retired() Retired {
	switch {
	case e.entry == nil:
		return NotListed
	case e.used:
		return InUse
	default:
		return Marked
	}
}

// readEmptiness reads all queues at once.
func readEmptiness(r kv.Reader, queues []Target) ([]emptiness, error) {
	type reads struct {
		entry                    kv.Future[[]byte]
		before, leftovers, after kv.Future[[]kv.KeyValue]
	}
	begun := make([]reads, len(queues))
	first := func(begin, end []byte) kv.Future[[]kv.KeyValue] {
		return r.GetRange(kv.Range{Begin: begin, End: end}, kv.RangeOptions{Limit: 1})
	}
	for i, queue := range queues {
		l := queue.layout()
		all := within([]byte(l.prefix))
		// Parts of messages and numbers of items stand beside each other.
		left, right := l.key(kindMeta, 0), append(l.key(kindCounter, 1), 0xff)
		begun[i] = reads{r.Get(l.listKey()), first(all.Begin, left), first(left, right), first(right, all.End)}
	}
	states := make([]emptiness, len(queues))
	for i, read := range begun {
		entry, err := read.entry.Get()
		var found [3]bool
		for n, part := range []kv.Future[[]kv.KeyValue]{read.before, read.leftovers, read.after} {
			pairs, partErr := part.Get()
			found[n], err = len(pairs) > 0, errors.Join(err, partErr)
		}
		if err != nil {
			return nil, err
		}
		states[i] = emptiness{entry: entry, used: found[0] || found[2], leftovers: found[1]}
	}
	return states, nil
}
