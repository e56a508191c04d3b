package state

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// SparedFor is how long the bound on the number of finished jobs spares one that has just finished.
const SparedFor = time.Minute

// justFinished reports whether a job has just finished. One that finished far ahead of the clock
// has not: a clock was wrong.
func justFinished(at, now time.Time) bool {
	age := now.Sub(at)
	return -SparedFor <= age && age < SparedFor
}

// BeginFinish starts to read where the order of finished jobs ends, unless that is known. Finish
// needs it. It reads without conflict, so acknowledgements do not conflict with each other: two at
// the same time may get the same place in the order.
func (g *Ledger) BeginFinish() {
	if g.orderRead == nil && g.orderEnd().IsZero() {
		last := kv.RangeOptions{Limit: 1, Reverse: true}
		g.orderRead = g.Tx.Snapshot().GetRange(g.L.FinishedOrder(), last)
	}
}

// orderEnd returns where the last place in the order is kept, zero as long as it is not known.
func (g *Ledger) orderEnd() *time.Time {
	if g.cache != nil {
		return &g.cache.orderEnd
	}
	return &g.ownOrderEnd
}

// nextOrder returns the place in the order of a job that finishes at a time.
func (g *Ledger) nextOrder(at time.Time) time.Time {
	end := g.orderEnd()
	if g.orderRead != nil {
		last, err := g.orderRead.Get()
		if err != nil {
			g.fail(err)
		}
		for _, pair := range last {
			e, _ := g.L.ParseFinishedEntry(pair) // the zero time if no queue wrote that key
			*end = e.Order
		}
		g.orderRead = nil
	}

	if next := end.Add(time.Microsecond); at.Before(next) {
		at = next
	}
	*end = at
	return at
}

// Finish writes the record of a job that is done, once BeginFinish was called.
func (g *Ledger) Finish(f *codec.Finished) {
	f.Order = g.nextOrder(f.At)
	job, parts := f.Job(), f.Encode()
	for n, part := range parts {
		g.Tx.Set(g.L.FinishedKey(&job, n), part)
	}

	e := codec.FinishedEntry{
		Order: f.Order, Job: job, At: f.At, Until: f.Until, Parts: len(parts),
	}
	if job != f.ID {
		e.Place = f.ID
		g.Tx.Set(g.L.FinishedPlaceKey(&f.ID), codec.EncodeID(&job))
	}
	g.Tx.Set(g.L.FinishedOrderKey(e.Order, &job), e.Encode())
	g.Tx.Set(g.L.FinishedEndKey(e.Until, &job), e.EncodeEnd())

	g.finished++
	g.wrote = true
	g.Ended = append(g.Ended, job)

	ran := time.Duration(-1)
	if !f.Since.IsZero() {
		ran = max(f.At.Sub(f.Since), 0) // two clocks, or one that was set back
	}
	g.Ran = append(g.Ran, ran)

	// A sweep may find too many before the first is over.
	first := codec.Earliest(f.Until, codec.Micros(f.At.Add(SparedFor)))
	g.Upcoming.Over = codec.Earliest(g.Upcoming.Over, first)
}

// RemoveFinished removes the record of a job, given one of its entries.
func (g *Ledger) RemoveFinished(e *codec.FinishedEntry) {
	if e.Parts == 1 {
		g.Tx.Clear(g.L.FinishedKey(&e.Job, 0))
	} else { // several, or the entry does not say
		g.Tx.ClearRange(g.L.FinishedRange(&e.Job))
	}
	if e.Place != (codec.ID{}) {
		g.Tx.Clear(g.L.FinishedPlaceKey(&e.Place))
	}
	g.Tx.Clear(g.L.FinishedOrderKey(e.Order, &e.Job))
	g.Tx.Clear(g.L.FinishedEndKey(e.Until, &e.Job))
	g.finished--
	g.wrote = true
}

// FinishedSweep is the finished jobs of a queue that are over being read, to remove them.
type FinishedSweep struct {
	page  int
	over  kv.Future[[]kv.KeyValue] // entries of the index by end
	count kv.Future[[]byte]
}

// BeginFinishedSweep starts to read up to page entries, without conflict.
func (g *Ledger) BeginFinishedSweep(page int) FinishedSweep {
	g.BeginSettings()
	snapshot := g.Tx.Snapshot()
	return FinishedSweep{
		page:  page,
		over:  snapshot.GetRange(g.L.FinishedOver(g.Now), kv.RangeOptions{Limit: page}),
		count: snapshot.Get(g.L.FinishedCounterKey()),
	}
}

// Finish removes the records that are over and, if these are all of them, the oldest of more than
// the settings allow. It returns how many, and whether there may be more to remove. An entry that
// cannot be read goes alone: the record has another one. The error is one of the store.
func (s *FinishedSweep) Finish(g *Ledger) (removed int, more bool, err error) {
	over, err := s.over.Get()
	if err != nil {
		return 0, false, err
	}
	if more = len(over) == s.page; !more {
		if removed, more, err = s.trim(g, len(over)); err != nil {
			return 0, false, err
		}
	}

	for _, pair := range over {
		e, err := g.L.ParseFinishedEnd(pair)
		g.sweepFinished(pair, &e, err)
	}
	return removed + len(over), more, nil
}

// trim removes the oldest records of more than the settings allow. over is how many are over and
// about to be removed.
func (s *FinishedSweep) trim(g *Ledger, over int) (removed int, more bool, err error) {
	count, err := ReadCounter(s.count)
	if codec.UnlessCorrupt(err) != nil {
		return 0, false, err
	}
	settings, err := g.ReadableSettings()
	if err != nil {
		return 0, false, err
	}
	beyond := count - int64(over) - settings.MostKept()
	if beyond <= 0 {
		return 0, false, nil
	}

	asked := kv.RangeOptions{Limit: s.page + over}
	entries, err := g.Tx.Snapshot().GetRange(g.L.FinishedOrder(), asked).Get()
	if err != nil {
		return 0, false, err
	}
	for _, pair := range entries {
		e, err := g.L.ParseFinishedEntry(pair)
		if err == nil && over > 0 && !e.Until.After(g.Now) { // counted above
			continue
		}
		if beyond == 0 {
			break
		}
		beyond--
		if err != nil || !justFinished(e.At, g.Now) {
			g.sweepFinished(pair, &e, err)
			removed++
		}
	}
	return removed, removed > 0 && beyond > 0, nil
}

// sweepFinished removes the record of an entry that was read without conflict, or the entry if it
// cannot be read. Whoever else removes the record conflicts.
func (g *Ledger) sweepFinished(pair kv.KeyValue, e *codec.FinishedEntry, failed error) {
	if failed != nil {
		g.Tx.Clear(pair.Key)
		return
	}
	g.Tx.AddReadConflict(kv.SingleKey(g.L.FinishedOrderKey(e.Order, &e.Job)))
	g.RemoveFinished(e)
}

// FinishedAhead is when a sweep of a queue finds a finished job to remove, being read.
type FinishedAhead struct {
	l        *codec.Layout
	first    kv.Future[[]kv.KeyValue] // the counter, and the first entry of the order
	end      kv.Future[[]kv.KeyValue] // the first entry of the index by end
	settings Ledger
}

// BeginFinishedAhead starts to read it, without conflict.
func BeginFinishedAhead(l *codec.Layout, r kv.Reader) FinishedAhead {
	all := l.AllOf(codec.KindFinishedOrder)
	return FinishedAhead{l: l, first: r.GetRange(all, kv.RangeOptions{Limit: 2})}
}

// Next starts what Time needs beyond the first read, which is nothing where no job is kept.
func (a *FinishedAhead) Next(r kv.Reader) error {
	pairs, err := a.first.Get()
	if len(pairs) > 0 {
		a.settings.ReadSettings(r, a.l)
		ends := a.l.KindRange(codec.KindFinishedEnd)
		a.end = r.GetRange(ends, kv.RangeOptions{Limit: 1})
	}
	return err
}

// Time returns the time; zero if there is none. What cannot be read is left out. The error is one
// of the store.
func (a *FinishedAhead) Time(now time.Time) (at time.Time, err error) {
	pairs, err := a.first.Get()
	if err != nil || len(pairs) == 0 {
		return at, err
	}
	ends, err := a.end.Get()
	if err != nil {
		return at, err
	}
	settings, err := a.settings.ReadableSettings()
	if err != nil {
		return at, err
	}

	for _, pair := range ends {
		e, _ := a.l.ParseFinishedEnd(pair)
		at = e.Until
	}
	oldest, err := a.l.ParseFinishedEntry(pairs[len(pairs)-1])
	count, countErr := ParseLength(pairs[0].Value)
	if err == nil && countErr == nil && count > settings.MostKept() {
		spared := oldest.At.Add(SparedFor)
		if !justFinished(oldest.At, now) {
			spared = codec.Micros(now)
		}
		at = codec.Earliest(at, spared)
	}
	return at, nil
}

// PurgeFinished removes the records of all jobs, and returns how many there were by the counter
// when it began. The caller must have flushed all ledgers of the queue. It conflicts with no
// acknowledgement: the counter goes with the records. The error is one of the store.
func (g *Ledger) PurgeFinished() (jobs int64, err error) {
	jobs, err = ReadCounter(g.Tx.Snapshot().Get(g.L.FinishedCounterKey()))
	if codec.UnlessCorrupt(err) != nil {
		return 0, err
	}

	g.Tx.ClearRange(g.L.KindRange(codec.KindFinished))
	g.Tx.ClearRange(g.L.AllOf(codec.KindFinishedOrder))
	g.Tx.ClearRange(g.L.KindRange(codec.KindFinishedEnd))
	g.wrote = true
	return jobs, nil
}
