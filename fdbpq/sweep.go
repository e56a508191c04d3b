package fdbpq

import (
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

const (
	// expiredPage is the most answers, and the most marks, of one queue that one
	// transaction looks at.
	expiredPage = 256
	// returnBytes is about the most bytes of values that it puts back, in all
	// queues together.
	returnBytes = 250_000
	// firstReturn is how many values it reads at first, and returnGrowth how many
	// times as many it reads at each later step.
	firstReturn  = 8
	returnGrowth = 8
)

// sweep puts back into queues the items of answers that were not collected in
// time, removes marks that nobody will look at any more, and notes in which queues
// there were such items. The error is one of the store; a queue whose answers or
// marks cannot be read is left as it is and its error noted.
func sweep(tx kv.Transaction, queues []*queueOps, now time.Time) error {
	left, err := beginLeftovers(tx, queues)
	if err != nil {
		return err
	}
	var expired []expiredAnswer
	for _, leftover := range left {
		answers, err := leftover.remove(tx, now)
		switch {
		case errors.Is(err, ErrCorrupt):
			leftover.q.unswept = err
		case err != nil:
			return err
		}
		expired = append(expired, answers...)
	}
	return returnItems(tx, expired)
}

// sweepOne is sweep for a queue that nothing else is done with at the same time.
func sweepOne(tx kv.Transaction, l *layout, now time.Time) (returned bool, err error) {
	q := queueOps{l: l}
	if err := sweep(tx, []*queueOps{&q}, now); err != nil {
		return false, err
	}
	q.count(tx)
	return q.returned, q.unswept
}

// leftovers is what staged pops of one queue have left.
type leftovers struct {
	q              *queueOps
	marks, answers kv.Future[[]kv.KeyValue]
}

// beginLeftovers begins to read what is left. Most queues never had a staged pop:
// one read tells that there is nothing.
func beginLeftovers(tx kv.Transaction, queues []*queueOps) ([]leftovers, error) {
	snapshot := tx.Snapshot()
	read := func(prefix []byte, limit int) kv.Future[[]kv.KeyValue] {
		return snapshot.GetRange(within(prefix), kv.RangeOptions{Limit: limit})
	}
	reads := make([]kv.Future[[]kv.KeyValue], len(queues))
	for i, q := range queues {
		reads[i] = read(q.l.key(kindAnswer, 1), 1)
	}
	var left []leftovers
	for i, q := range queues {
		any, err := reads[i].Get()
		if err != nil {
			return nil, err
		}
		if len(any) > 0 {
			left = append(left, leftovers{q: q})
		}
	}
	for i := range left {
		l := left[i].q.l
		left[i].marks = read(l.partPrefix(partMark), expiredPage)
		left[i].answers = read(l.partPrefix(partAnswer), expiredPage)
	}
	return left, nil
}

// expiredAnswer is an answer whose item is to be put back.
type expiredAnswer struct {
	q             *queueOps
	key, valueKey []byte
	answer        *answer
	value         kv.Future[[]byte]
}

// remove removes the marks that have expired, and the answers that say "empty", and
// returns the other answers that have. If there is something that it cannot read,
// it removes nothing.
func (left leftovers) remove(tx kv.Transaction, now time.Time) ([]expiredAnswer, error) {
	marks, err := left.expiredMarks(now)
	if err != nil {
		return nil, err
	}
	answers, err := left.expiredAnswers(now)
	if err != nil {
		return nil, err
	}
	for _, key := range marks {
		tx.Clear(key)
	}
	withItem := answers[:0]
	for _, e := range answers {
		if e.answer.item != nil {
			withItem = append(withItem, e)
			continue
		}
		tx.AddReadConflict(kv.SingleKey(e.key))
		tx.Clear(e.key)
	}
	return withItem, nil
}

func (left leftovers) expiredMarks(now time.Time) (keys [][]byte, err error) {
	pairs, err := left.marks.Get()
	if err != nil {
		return nil, err
	}
	for _, pair := range pairs {
		deadline, _, err := parseMark(pair.Value)
		if err != nil {
			return nil, err
		}
		if deadline.Before(now) {
			keys = append(keys, pair.Key)
		}
	}
	return keys, nil
}

func (left leftovers) expiredAnswers(now time.Time) (expired []expiredAnswer, err error) {
	pairs, err := left.answers.Get()
	if err != nil {
		return nil, err
	}
	l := left.q.l
	for _, pair := range pairs {
		a, err := parseAnswer(pair.Value)
		if err != nil {
			return nil, err
		}
		if !a.deadline.After(now) {
			request := pair.Key[len(l.partPrefix(partAnswer)):]
			valueKey := append(l.partPrefix(partValue), request...)
			expired = append(expired, expiredAnswer{q: left.q, key: pair.Key, valueKey: valueKey, answer: a})
		}
	}
	return expired, nil
}

// returnItems puts the items of answers back until they are returnBytes. The size
// of a value is not known before it is read, so it reads few at first, in order not
// to read much more than it returns, and more at each step, to take few steps.
func returnItems(tx kv.Transaction, expired []expiredAnswer) error {
	bytes := 0
	for next := firstReturn; len(expired) > 0 && bytes <= returnBytes; next *= returnGrowth {
		some := expired[:min(next, len(expired))]
		expired = expired[len(some):]
		for i := range some {
			some[i].value = tx.Get(some[i].valueKey)
		}
		for i := 0; i < len(some) && bytes <= returnBytes; i++ {
			stored, err := some[i].value.Get()
			if err != nil {
				return err
			}
			some[i].putBack(tx, stored)
			bytes += len(stored)
		}
	}
	return nil
}

func (e *expiredAnswer) putBack(tx kv.Transaction, stored []byte) {
	tx.AddReadConflict(kv.SingleKey(e.key))
	tx.Clear(e.key)
	tx.Clear(e.valueKey)
	e.q.returnAnswer(tx, e.answer, stored)
	e.q.returned = true
}
