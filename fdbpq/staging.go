package fdbpq

import (
	"fmt"
	"math/rand/v2"
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
//	("f", 2, request)     = (deadline, n)      mark: the owner's n'th attempt to
//	                                           take an item was committed
//
// request is 20 random bytes that begin with a time, as those of items, so
// that the oldest come first. deadline is in microseconds.
//
// # Why no item is lost or taken twice
//
// The owner of a request does four things to it: take an item (at once, when
// serving, or from the answer), register, be told "empty", withdraw. Every
// attempt at one of these reads the answer's key and writes it, or acts as if.
// So attempts of one request conflict with each other: of those whose commits
// ended without an answer, no earlier one can be committed once a later one is.
// An item is taken if, and only if, the mark is there, and the mark says by
// which attempt, so a pop that finds the mark knows its item.
//
// A request keeps the place at which its owner first tried to register it, so
// that it is in line once at most: an earlier attempt that was committed after
// all left the very key that the next one looks for.
//
// Whoever serves the line reads and removes the requests that it answers, and
// the items, so that each request gets one answer and each item goes to one
// request. A request that is withdrawn or served meanwhile conflicts with it.
//
// Whoever returns an item that was not collected in time reads and removes the
// answer, which conflicts with collecting it.
const (
	partAnswer = iota
	partValue
	partMark
)

func (l *layout) requestRange() kv.Range { return within(l.key(kindRequest, 1)) }

func (l *layout) requestKey(count int64, id [randomSize]byte) []byte {
	return tuple.AppendBytes(tuple.AppendInt(l.key(kindRequest, 40), count), id[:])
}

func (l *layout) partPrefix(part int64) []byte {
	return tuple.AppendInt(l.key(kindAnswer, 40), part)
}

func (l *layout) partKey(part int64, id [randomSize]byte) []byte {
	return tuple.AppendBytes(l.partPrefix(part), id[:])
}

// request is one pop, as its owner sees it.
type request struct {
	kind                         OpKind
	id                           [randomSize]byte
	answerKey, valueKey, markKey []byte
	removes                      [][]byte // marks of earlier pops, removed on the way

	key   []byte   // its place in line, the same for life; nil until first registered
	taken []*found // what each attempt to take an item would have taken

	early      bool          // the line was empty, so it may be the first soon
	first      string        // the first in line when last seen
	firstSince time.Time     // since when it is
	patience   time.Duration // with a first in line that does not serve
}

func newRequest(l *layout, kind OpKind, now time.Time) *request {
	id := newID(0, 0, now, uniqueBytes(1), false).Random
	return &request{
		kind:      kind,
		id:        id,
		answerKey: l.partKey(partAnswer, id),
		valueKey:  l.partKey(partValue, id),
		markKey:   l.partKey(partMark, id),
		patience:  minPatience + rand.N(maxPatience-minPatience),
	}
}

// attempted reports whether anything may have been written for the request.
func (r *request) attempted() bool { return r.key != nil || len(r.taken) > 0 }

// fence makes attempts of the same request conflict with each other. The read
// must come first: FoundationDB leaves out what the transaction has written.
func (r *request) fence(tx kv.Transaction) {
	tx.AddReadConflict(kv.SingleKey(r.answerKey))
	tx.AddWriteConflict(kv.SingleKey(r.answerKey))
}

// take writes that the item was taken by this request.
func (r *request) take(tx kv.Transaction, item *found, now time.Time) {
	r.fence(tx)
	tx.Set(r.markKey, tuple.Tuple{now.Add(markLife).UnixMicro(), int64(len(r.taken))}.Pack())
	for _, key := range r.removes {
		tx.Clear(key)
	}
	r.taken = append(r.taken, item)
}

// marked returns the item that the request has taken, nil if it has taken none.
func (r *request) marked(mark kv.Future[[]byte]) (*found, error) {
	value, err := mark.Get()
	if err != nil || value == nil {
		return nil, err
	}
	_, n, err := parseMark(value)
	if err == nil && (n < 0 || n >= int64(len(r.taken))) {
		err = fmt.Errorf("%w: mark of attempt %d: there were %d", ErrCorrupt, n, len(r.taken))
	}
	if err != nil {
		return nil, err
	}
	return r.taken[n], nil
}

func parseMark(value []byte) (deadline time.Time, n int64, err error) {
	micros, rest, err := tuple.DecodeInt(value)
	if err == nil {
		n, _, err = tuple.DecodeInt(rest)
	}
	if err != nil {
		return deadline, 0, fmt.Errorf("%w: mark %x: %w", ErrCorrupt, value, err)
	}
	return time.UnixMicro(micros), n, nil
}

// see notes who is first in line.
func (r *request) see(line []kv.KeyValue, now time.Time) {
	r.early = false
	first := ""
	if len(line) > 0 {
		first = string(line[0].Key)
	}
	if first != r.first {
		r.first, r.firstSince = first, now
	}
}

// shouldServe reports whether it is up to this request to serve the line.
func (r *request) shouldServe(now time.Time) bool {
	if r.key == nil || r.first == "" {
		return false
	}
	return r.first == string(r.key) || now.Sub(r.firstSince) > r.patience
}

// waiter is a request in line, as others see it.
type waiter struct {
	key      []byte
	kind     OpKind
	count    int64
	id       [randomSize]byte
	deadline time.Time
}

func encodeRequest(kind OpKind, deadline time.Time) []byte {
	return tuple.Tuple{int64(kind), deadline.UnixMicro()}.Pack()
}

func (l *layout) parseWaiter(pair kv.KeyValue) (*waiter, error) {
	key, err := tuple.Unpack(pair.Key[len(l.prefix)+kindSize:])
	if err != nil {
		return nil, fmt.Errorf("%w: request %x: %w", ErrCorrupt, pair.Key, err)
	}
	value, err := tuple.Unpack(pair.Value)
	if err != nil {
		return nil, fmt.Errorf("%w: request %x: %w", ErrCorrupt, pair.Key, err)
	}
	w := &waiter{key: pair.Key}
	var id []byte
	var kind, micros int64
	if len(key) != 2 || !element(key[0], &w.count) || !element(key[1], &id) || len(id) != randomSize ||
		len(value) != 2 || !element(value[0], &kind) || !element(value[1], &micros) ||
		kind != int64(OpPopMin) && kind != int64(OpPopMax) {
		return nil, fmt.Errorf("%w: request %x = %x", ErrCorrupt, pair.Key, pair.Value)
	}
	copy(w.id[:], id)
	w.kind = OpKind(kind)
	w.deadline = time.UnixMicro(micros)
	return w, nil
}

// answer is what is stored for a request that was served.
type answer struct {
	deadline time.Time
	item     *ID // nil: the queue was empty
}

func (a *answer) encode() []byte {
	if a.item == nil {
		return tuple.Tuple{a.deadline.UnixMicro()}.Pack()
	}
	return tuple.Tuple{a.deadline.UnixMicro(), a.item.Priority, a.item.Count, a.item.Random[:]}.Pack()
}

func parseAnswer(value []byte) (*answer, error) {
	t, err := tuple.Unpack(value)
	if err != nil {
		return nil, fmt.Errorf("%w: answer %.100x: %w", ErrCorrupt, value, err)
	}
	var micros int64
	var random []byte
	var id ID
	ok := len(t) > 0 && element(t[0], &micros)
	a := &answer{deadline: time.UnixMicro(micros)}
	if ok && len(t) > 1 {
		ok = len(t) == 4 && element(t[1], &id.Priority) && element(t[2], &id.Count) &&
			element(t[3], &random) && len(random) == randomSize
		copy(id.Random[:], random)
		a.item = &id
	}
	if !ok {
		return nil, fmt.Errorf("%w: answer %.100x", ErrCorrupt, value)
	}
	return a, nil
}

// element stores one element of a tuple if it is of the right type.
func element[T any](from any, to *T) bool {
	value, ok := from.(T)
	*to = value
	return ok
}

// collect takes what the answer to r gives it, in tx.
func (p *Popper) collect(tx kv.Transaction, r *request, encoded []byte) (*Result, error) {
	a, err := parseAnswer(encoded)
	if err != nil {
		return nil, err
	}
	r.fence(tx)
	tx.Clear(r.answerKey)
	if a.item == nil {
		return &Result{Err: ErrEmpty}, nil
	}
	value, metas := tx.Get(r.valueKey), p.l.readMetas(tx, a.item)
	stored, err := value.Get()
	if err != nil {
		return nil, err
	}
	f := p.l.found(*a.item, kv.KeyValue{Key: p.l.itemKey(a.item), Value: stored}, metas)
	if err := f.wait(); err != nil {
		return nil, err
	}
	tx.Clear(r.valueKey)
	if f.err != nil {
		back := queueOps{l: p.l}
		back.returnAnswer(tx, a, stored)
		back.count(tx)
		return &Result{Err: f.err}, nil
	}
	f.clearParts(tx)
	r.take(tx, &f, p.now())
	return &Result{Item: f.item}, nil
}

// returnAnswer writes the item of an answer, if it has one, to its old place.
func (q *queueOps) returnAnswer(tx kv.Transaction, a *answer, stored []byte) {
	if a.item != nil {
		tx.Set(q.l.itemKey(a.item), stored)
		q.changed(a.item, 1)
	}
}
