package codec

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// The keys of staged pops:
//
//	("r", count, request) = (kind, deadline)   a request in line
//	("f", 0, request)     = (deadline)         its answer: the queue was empty
//	                      = (deadline, priority, count, random)
//	                                           its answer: an item, which left ("i")
//	("f", 1, request)     = value              the value of that item, as it was stored
//	("f", 2, request)     = (deadline, n)      claim: the owner's n'th attempt to take
//	                                           an item has committed
//
// request is 20 random bytes that begin with a time, as in items, so the oldest come first.
// deadline is in microseconds since 1970. Answers and claims fall due then, and have entries in the
// time index.
//
// # Why no item is lost or taken twice
//
// The owner of a request makes attempts of four kinds: to take an item (at once, while serving, or
// from the answer), to register, to learn that the queue is empty, and to withdraw. Each of them
// reads and writes the key of the answer, or acts as if it did. So attempts of one request
// conflict: if outcomes are unknown, no earlier attempt can commit once a later one has. The item
// is taken if and only if the claim is there. The claim says by which attempt, so a pop that finds
// its claim knows its item.
//
// A request keeps the place where its owner first tried to register it. So it is in line at most
// once: an earlier attempt that did commit has left the very key that the next one reads.
//
// A transaction that serves the line reads and removes the requests that it answers, and their
// items. So each request gets one answer, and each item goes to one request. It conflicts with the
// withdrawal, and with another serving, of the same requests. A transaction that returns an
// uncollected item reads and removes the answer, and so conflicts with its collection.
// A purge of the queue removes answers with their values: the owners then register again.
const (
	PartAnswer = iota
	PartValue
	PartClaim
)

// RequestRange is the range of the requests in line.
func (l *Layout) RequestRange() kv.Range { return l.KindRange(KindRequest) }

// RequestKey is the key of a request in line.
func (l *Layout) RequestKey(count int64, id [RandomSize]byte) []byte {
	return tuple.AppendBytes(tuple.AppendInt(l.Key(KindRequest, 40), count), id[:])
}

// PartPrefix is the prefix of the keys ("f", part, ...).
func (l *Layout) PartPrefix(part int64) []byte {
	return tuple.AppendInt(l.Key(KindAnswer, 40), part)
}

// PartKey is the key ("f", part, request).
func (l *Layout) PartKey(part int64, id [RandomSize]byte) []byte {
	return tuple.AppendBytes(l.PartPrefix(part), id[:])
}

// LineEntry is a request in line as every Popper sees it.
type LineEntry struct {
	Key      []byte
	End      End
	Count    int64
	ID       [RandomSize]byte
	Deadline time.Time
}

// requestKinds are the stored kinds of requests, by End.
var requestKinds = [...]int64{Front: 2, Back: 3}

// EncodeRequest returns the value of a request.
func EncodeRequest(end End, deadline time.Time) []byte {
	return appendInts(nil, requestKinds[end], deadline.UnixMicro())
}

// ParseRequest reads a request. The error wraps ErrCorrupt.
func (l *Layout) ParseRequest(pair kv.KeyValue) (*LineEntry, error) {
	key, value := decoder{rest: l.Place(pair.Key)}, decoder{rest: pair.Value}
	w := &LineEntry{Key: pair.Key, Count: key.int(), ID: key.random()}

	// An unknown kind is a Front here, which the check below refuses.
	kind := value.int()
	w.Deadline = value.time()
	if kind == requestKinds[Back] {
		w.End = Back
	}

	err := cmp.Or(key.end(), value.end())
	if err == nil && kind != requestKinds[w.End] {
		err = errors.New("unknown kind")
	}

	if err != nil {
		return nil, fmt.Errorf("%w: request %x = %x: %w", ErrCorrupt, pair.Key, pair.Value, err)
	}
	return w, nil
}

// Answer is the stored answer to a request.
type Answer struct {
	Deadline time.Time
	Item     *ID // nil: the queue was empty
}

// Encode returns the value of the answer.
func (a *Answer) Encode() []byte {
	b := tuple.AppendInt(nil, a.Deadline.UnixMicro())
	if a.Item != nil {
		b = append(b, EncodeID(a.Item)...)
	}
	return b
}

// ParseAnswer reads what Encode wrote. The error wraps ErrCorrupt.
func ParseAnswer(value []byte) (*Answer, error) {
	d := decoder{rest: value}
	a := &Answer{Deadline: d.time()}
	if d.more() {
		id := d.id()
		a.Item = &id
	}
	return finish(&d, a, "answer", value)
}

// EncodeClaim returns the value of a claim of the n'th attempt.
func EncodeClaim(deadline time.Time, n int) []byte {
	return appendInts(nil, deadline.UnixMicro(), int64(n))
}

// ParseClaim reads what EncodeClaim wrote. The error wraps ErrCorrupt.
func ParseClaim(value []byte) (deadline time.Time, n int64, err error) {
	d := decoder{rest: value}
	deadline, n = d.time(), d.int()
	if d.err != nil {
		return deadline, 0, fmt.Errorf("%w: claim %x: %w", ErrCorrupt, value, d.err)
	}
	return deadline, n, nil
}
