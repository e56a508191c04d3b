package fdbpq

import (
	"context"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// The keys of staged pops:
//
//	("r", count, request) = (kind, deadline)                a request in line
//	("f", request)        = (answer, deadline, ...)         its answer
//
// request is 20 random bytes that begin with a time, as those of items, so
// that the oldest answers come first. deadline is in microseconds. An answer is
//
//	(answerEmpty, deadline)
//	(answerItem, deadline, priority, count, random, value)  an item that left ("i")
//	(answerCollected, deadline)                             the item was taken
//
// Every attempt to take an item, to register or to withdraw reads the answer's
// key and writes it (registering adds a write conflict only). So of attempts
// whose commits ended without an answer, no earlier one can be committed once a
// later one is; and an item counts as taken if, and only if, its answer says
// "collected", which is how a pop learns what became of its own attempt.
const (
	answerEmpty = iota
	answerItem
	answerCollected
)

func (l *layout) requestRange() kv.Range { return within(l.requests) }

func (l *layout) requestKey(count int64, id [randomSize]byte) []byte {
	key := tuple.AppendInt(append(make([]byte, 0, len(l.requests)+40), l.requests...), count)
	return tuple.AppendBytes(key, id[:])
}

func (l *layout) answerKey(id [randomSize]byte) []byte {
	return tuple.AppendBytes(append(make([]byte, 0, len(l.answers)+40), l.answers...), id[:])
}

// request is one staged pop.
type request struct {
	kind      OpKind
	id        [randomSize]byte
	count     int64
	deadline  time.Time
	key       []byte   // where it is registered; nil before
	answerKey []byte   // where its answer will be
	removes   [][]byte // answers of earlier pops, removed on the way

	taken *Item // what the last attempt to take would have taken

	first      string    // the first in line when last seen
	firstSince time.Time // since when it is
}

func (r *request) encode(deadline time.Time) []byte {
	return tuple.Tuple{int64(r.kind), deadline.UnixMicro()}.Pack()
}

func (l *layout) parseRequest(pair kv.KeyValue) (*request, error) {
	corrupt := func(err error) (*request, error) {
		return nil, fmt.Errorf("%w: request %x: %w", ErrCorrupt, pair.Key, err)
	}
	count, rest, err := tuple.DecodeInt(pair.Key[len(l.requests):])
	if err != nil {
		return corrupt(err)
	}
	id, _, err := tuple.DecodeBytes(rest)
	if err != nil || len(id) != randomSize {
		return corrupt(fmt.Errorf("its id has %d bytes: %w", len(id), err))
	}
	kind, rest, err := tuple.DecodeInt(pair.Value)
	if err != nil {
		return corrupt(err)
	}
	deadline, _, err := tuple.DecodeInt(rest)
	if err != nil {
		return corrupt(err)
	}
	r := &request{kind: OpKind(kind), count: count, deadline: time.UnixMicro(deadline), key: pair.Key}
	copy(r.id[:], id)
	r.answerKey = l.answerKey(r.id)
	return r, nil
}

// see notes who is first in line.
func (r *request) see(line []kv.KeyValue, now time.Time) {
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
	if r.first == "" {
		return false
	}
	return r.first == string(r.key) || now.Sub(r.firstSince) > patience
}

// collect writes that the item was taken by this request.
func (r *request) collect(tx kv.Transaction, item Item) {
	tx.AddReadConflict(kv.SingleKey(r.answerKey))
	tx.Set(r.answerKey, tuple.Tuple{int64(answerCollected), time.Now().Add(collectedLife).UnixMicro()}.Pack())
	for _, key := range r.removes {
		tx.Clear(key)
	}
	r.taken = &item
}

// answer is what is stored under ("f", request).
type answer struct {
	kind     int64
	deadline time.Time
	id       ID
	stored   []byte // the value as it was in ("i")
	err      error  // what is wrong with the item
}

func (a *answer) encode() []byte {
	if a.kind != answerItem {
		return tuple.Tuple{a.kind, a.deadline.UnixMicro()}.Pack()
	}
	return tuple.Tuple{a.kind, a.deadline.UnixMicro(), a.id.Priority, a.id.Count, a.id.Random[:], a.stored}.Pack()
}

func parseAnswer(value []byte) (*answer, error) {
	t, err := tuple.Unpack(value)
	if err != nil {
		return nil, fmt.Errorf("%w: answer %.100x: %w", ErrCorrupt, value, err)
	}
	a := &answer{}
	var micros int64
	var random []byte
	ok := len(t) >= 2 && element(t[0], &a.kind) && element(t[1], &micros)
	if ok && a.kind == answerItem {
		ok = len(t) == 6 && element(t[2], &a.id.Priority) && element(t[3], &a.id.Count) &&
			element(t[4], &random) && len(random) == randomSize && element(t[5], &a.stored)
	}
	if !ok {
		return nil, fmt.Errorf("%w: answer %.100x", ErrCorrupt, value)
	}
	copy(a.id.Random[:], random)
	a.deadline = time.UnixMicro(micros)
	return a, nil
}

// element stores one element of a tuple if it is of the right type.
func element[T any](from any, to *T) bool {
	value, ok := from.(T)
	*to = value
	return ok
}

// outcome is what the pop returns that found this answer.
func (a *answer) outcome(r *request) (Item, error) {
	switch {
	case a.err != nil:
		return Item{}, a.err
	case a.kind == answerEmpty:
		return Item{}, ErrEmpty
	}
	return *r.taken, nil
}

// readAnswer reads the answer to r and takes it, in tx. It returns nil if it
// is not there.
func (p *Popper) readAnswer(tx kv.Transaction, r *request) (*answer, error) {
	value, err := tx.Get(r.answerKey).Get()
	if err != nil || value == nil {
		return nil, err
	}
	a, err := parseAnswer(value)
	if err != nil {
		return nil, err
	}
	switch a.kind {
	case answerEmpty:
		tx.Clear(r.answerKey)
	case answerItem:
		f := p.l.find(tx, kv.KeyValue{Key: p.l.itemKey(&a.id), Value: a.stored})
		if err := f.wait(); err != nil {
			return nil, err
		}
		if f.err != nil {
			a.err = f.err
			tx.Clear(r.answerKey)
			return a, p.l.putAnswerBack(tx, value, r)
		}
		for _, part := range f.parts {
			tx.Clear(part.Key)
		}
		r.collect(tx, f.item)
	}
	return a, nil
}

// putAnswerBack puts the item of an answer, or the one that r took, back into
// the queue. It leaves the answer itself.
func (l *layout) putAnswerBack(tx kv.Transaction, value []byte, r *request) error {
	if value == nil {
		return nil
	}
	a, err := parseAnswer(value)
	if err != nil {
		return err
	}
	back := queueOps{l: l}
	switch {
	case a.kind == answerItem:
		tx.Set(l.itemKey(&a.id), a.stored)
		back.changed(&a.id, 1)
	case a.kind == answerCollected && r != nil && r.taken != nil:
		l.put(tx, &r.taken.ID, &r.taken.Message)
		back.changed(&r.taken.ID, 1)
	}
	back.count(tx)
	return nil
}

// serve answers the requests in line. An error that is retryable or unknown
// means that somebody else was at it, or that it must be looked at again.
func (p *Popper) serve(ctx context.Context) error {
	return once(ctx, p.db, func(tx kv.Transaction) error {
		now := time.Now()
		line, err := tx.Snapshot().GetRange(p.l.requestRange(), kv.RangeOptions{Limit: serveLimit}).Get()
		if err != nil {
			return err
		}
		if _, err := returnExpired(tx, p.l, now); err != nil {
			return err
		}
		var ends [2][]*request
		for _, pair := range line {
			r, err := p.l.parseRequest(pair)
			if err != nil {
				return err
			}
			tx.AddReadConflict(kv.SingleKey(r.key))
			tx.Clear(r.key)
			switch {
			case r.deadline.Before(now):
			case r.kind == OpPopMax:
				ends[1] = append(ends[1], r)
			default:
				ends[0] = append(ends[0], r)
			}
		}
		return serveEnds(tx, p.l, ends, now.Add(answerLife))
	})
}

// serveEnds gives the first items to ends[0] and the last ones to ends[1]. Its
// reads conflict with nothing but with what takes the same items, unless it
// must answer "empty".
func serveEnds(tx kv.Transaction, l *layout, ends [2][]*request, deadline time.Time) error {
	var reads [2]kv.Future[[]kv.KeyValue]
	for end, requests := range ends {
		if len(requests) > 0 {
			reads[end] = tx.Snapshot().GetRange(l.itemRange(), kv.RangeOptions{Limit: len(requests), Reverse: end == 1})
		}
	}
	q := queueOps{l: l}
	taken := make(map[string]struct{})
	for end, requests := range ends {
		if len(requests) == 0 {
			continue
		}
		pairs, err := reads[end].Get()
		if err != nil {
			return err
		}
		for _, pair := range pairs {
			if _, gone := taken[string(pair.Key)]; gone {
				continue
			}
			id, err := l.parseItem(pair.Key)
			if err != nil {
				return err
			}
			taken[string(pair.Key)] = struct{}{}
			tx.AddReadConflict(kv.SingleKey(pair.Key))
			tx.Clear(pair.Key)
			q.changed(&id, -1)
			a := answer{kind: answerItem, deadline: deadline, id: id, stored: pair.Value}
			tx.Set(requests[0].answerKey, a.encode())
			if requests = requests[1:]; len(requests) == 0 {
				break
			}
		}
		for _, r := range requests {
			tx.AddReadConflict(l.itemRange())
			a := answer{kind: answerEmpty, deadline: deadline}
			tx.Set(r.answerKey, a.encode())
		}
	}
	q.count(tx)
	return nil
}

// expiredPage is the most answers that one transaction looks at.
const expiredPage = 256

// returnExpired puts back into the queue the items of answers that were not
// collected in time, and says whether there were any.
func returnExpired(tx kv.Transaction, l *layout, now time.Time) (returned bool, err error) {
	oldest, err := tx.Snapshot().GetRange(within(l.answers), kv.RangeOptions{Limit: expiredPage}).Get()
	if err != nil {
		return false, err
	}
	for _, pair := range oldest {
		a, err := parseAnswer(pair.Value)
		if err != nil {
			return false, err
		}
		if a.deadline.After(now) {
			continue
		}
		tx.AddReadConflict(kv.SingleKey(pair.Key))
		tx.Clear(pair.Key)
		if err := l.putAnswerBack(tx, pair.Value, nil); err != nil {
			return false, err
		}
		returned = returned || a.kind == answerItem
	}
	return returned, nil
}
