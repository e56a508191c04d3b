package state

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// SparedFor is how long a sweep leaves what has just finished, however much it is. So the part of
// the order that a sweep reads is never the part that acknowledgements write.
const SparedFor = time.Minute

// Finish writes the record of a job that is done. It reads nothing, so acknowledgements do not
// conflict with each other.
func (g *Ledger) Finish(f *codec.Finished) {
	job, parts := f.Job(), f.Encode()
	for n, part := range parts {
		g.Tx.Set(g.L.FinishedKey(&job, n), part)
	}

	e := codec.FinishedEntry{At: f.At, Job: job, Until: f.Until, Parts: len(parts)}
	if job != f.ID {
		e.Place = f.ID
		g.Tx.Set(g.L.FinishedPlaceKey(&f.ID), codec.EncodeID(&job))
	}
	g.Tx.Set(g.L.FinishedOrderKey(e.At, &job), e.Encode())

	g.finished++
	g.wrote = true
	g.Ended = append(g.Ended, job)

	ran := time.Duration(-1)
	if !f.Since.IsZero() {
		ran = max(f.At.Sub(f.Since), 0) // two clocks, or one that was set back
	}
	g.Ran = append(g.Ran, ran)

	// A sweep may find too many before the first is over.
	g.Upcoming.Over = codec.Earliest(g.Upcoming.Over, codec.Micros(f.At.Add(SparedFor)))
}

// RemoveFinished removes the record of a job, given its entry of the order.
func (g *Ledger) RemoveFinished(e *codec.FinishedEntry) {
	if e.Parts == 1 {
		g.Tx.Clear(g.L.FinishedKey(&e.Job, 0))
	} else { // several, or the entry does not say
		g.Tx.ClearRange(g.L.FinishedRange(&e.Job))
	}
	if e.Place != (codec.ID{}) {
		g.Tx.Clear(g.L.FinishedPlaceKey(&e.Place))
	}
	g.Tx.Clear(g.L.FinishedOrderKey(e.At, &e.Job))
	g.finished--
	g.wrote = true
}

// FinishedSweep is the oldest finished jobs of a queue being read, to remove some of them.
type FinishedSweep struct {
	page    int
	entries kv.Future[[]kv.KeyValue]
	count   kv.Future[[]byte]
}

// BeginFinishedSweep starts to read up to page entries, with conflict, so that none is removed and
// counted twice.
func (g *Ledger) BeginFinishedSweep(page int) FinishedSweep {
	g.BeginSettings()
	old := g.L.FinishedUpTo(g.Now.Add(-SparedFor))
	return FinishedSweep{
		page:    page,
		entries: g.Tx.GetRange(old, kv.RangeOptions{Limit: page}),
		count:   g.Tx.Snapshot().Get(g.L.FinishedCounterKey()),
	}
}

// Finish removes the records that are over, and the oldest of more than the settings allow. It
// returns how many, and whether there may be more to remove. Entries that cannot be read go, too.
// The error is one of the store.
func (s *FinishedSweep) Finish(g *Ledger) (removed int, more bool, err error) {
	entries, err := s.entries.Get()
	if err != nil || len(entries) == 0 {
		return 0, false, err
	}

	count, err := ReadCounter(s.count)
	if codec.UnlessCorrupt(err) != nil {
		return 0, false, err
	}
	settings, err := g.ReadableSettings()
	if err != nil {
		return 0, false, err
	}

	beyond := count - settings.MostKept()
	for n, pair := range entries {
		e, err := g.L.ParseFinishedEntry(pair)
		switch {
		case err != nil && e.At.IsZero(): // no queue wrote that key, so it was not counted
			g.Tx.Clear(pair.Key)
		case err != nil, int64(n) < beyond, !e.Until.After(g.Now):
			g.RemoveFinished(&e)
		default:
			continue
		}
		removed++
	}
	return removed, len(entries) == s.page && removed > 0, nil
}

// FinishedAhead is when a sweep of a queue finds a finished job to remove, being read.
type FinishedAhead struct {
	l        *codec.Layout
	first    kv.Future[[]kv.KeyValue] // the counter, and the first entry of the order
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
	}
	return err
}

// Time returns the time; zero if there is none. What cannot be read is left out. The error is one
// of the store.
func (a *FinishedAhead) Time() (at time.Time, err error) {
	pairs, err := a.first.Get()
	if err != nil || len(pairs) == 0 {
		return at, err
	}

	settings, err := a.settings.ReadableSettings()
	if err != nil {
		return at, err
	}

	if first, err := a.l.ParseFinishedEntry(pairs[len(pairs)-1]); err == nil {
		at = first.At.Add(SparedFor)
		count, err := ParseLength(pairs[0].Value)
		if (err != nil || count <= settings.MostKept()) && first.Until.After(at) {
			at = first.Until
		}
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
	g.wrote = true
	return jobs, nil
}
