package codec

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// The time index says what falls due in a queue, and when. Each key that falls due has an entry,
// written and removed together with the key:
//
//	("t", due) + (kind, ...) = ""
//
// due is in microseconds since 1970, and (kind, ...) is the key that falls due, without the queue's
// subspace: a held item, or an answer or claim of staged pops. ("x", priority, count, random)
// stands for an item in ("i") that expires, with its unique key as the value: see expiry.go.
// ("s", id) is a schedule that fires, and ("p", name) a consumer that goes.
//
// Nothing runs at the due time itself. There is one way back: each transaction that looks at a
// queue reads the index up to now and first handles what is due there, at most due.Page entries, in
// the order in which they fell due. What is left counts as what it was, leased or delayed, and is
// served once it is back; Pending.Behind names its queue, so that a sweeper can go on with OpSweep,
// which takes more at a time. An item that has expired is never served, whether it is removed yet
// or not. An operation that cannot tell yet what its result is, such as a pop that has met nothing
// but expired items, fails with an error that wraps ErrNoRoom: the next transaction goes on where
// this one has ended.
//
// An entry is removed together with its key, or by a transaction that has read that the key is gone
// and conflicts with whoever writes it. Versions of this package before the index leave such
// entries.

// DueKey returns the entry for a key that falls due at the given time.
func (l *Layout) DueKey(at time.Time, key []byte) []byte {
	rest := key[len(l.Prefix):]
	return append(tuple.AppendInt(l.Key(KindDue, 9+len(rest)), at.UnixMicro()), rest...)
}

// DueRange is the range of the entries that are due.
func (l *Layout) DueRange(now time.Time) kv.Range { return l.timesUpTo(KindDue, now) }

// timesUpTo is the range of the keys of a kind that begin with a time in microseconds, up to now.
func (l *Layout) timesUpTo(kind string, now time.Time) kv.Range {
	return kv.Range{Begin: l.KindRange(kind).Begin, End: tuple.AppendInt(l.Key(kind, 9), now.UnixMicro()+1)}
}

// LaterRange is the range of the entries that are not due yet.
func (l *Layout) LaterRange(now time.Time) kv.Range {
	return kv.Range{Begin: l.DueRange(now).End, End: l.KindRange(KindDue).End}
}

// DueTime returns when an entry falls due.
func (l *Layout) DueTime(entry []byte) (time.Time, error) {
	d := decoder{rest: l.Place(entry)}
	at := d.time()
	return at, d.err
}
