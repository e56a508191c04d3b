package state

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// FinishedRead is a finished job being read, and its entry in the order in which jobs finished.
type FinishedRead struct {
	codec.FinishedEntry
	Record *codec.Finished // in full, unless Over or Err
	Over   bool            // it is not kept any longer
	Cut    bool            // Record has only what says when and how it was done
	Bytes  int             // about how many were read of it
	Err    error           // ErrCorrupt if it cannot be read

	parts kv.Future[[]kv.KeyValue] // nil if not begun
}

const (
	// finishedPage is the most entries of the order that a page reads.
	finishedPage = 256
	// smallRecord is the most keys of a record that is read together with others.
	smallRecord = 2
)

// ReadFinishedPage reads up to most finished jobs, newest first, that come after an entry of the
// order; nil begins with the newest. A page ends when it is large enough, but has at least one job
// if there is one. more says that something may come after it. The error is one of the store.
func ReadFinishedPage(
	l *codec.Layout, r kv.Reader, now time.Time, after *codec.FinishedEntry, most int,
) (jobs []FinishedRead, more bool, err error) {
	all, more, err := readFinishedEntries(l, r, now, after, most)
	if err != nil {
		return nil, true, err
	}

	// Read the records group by group, until the page is large enough.
	for size := 0; len(jobs) < len(all) && size < pageBytes; {
		some := all[len(jobs):]
		some = some[:min(len(some), browseAtOnce)]
		for i := range some {
			if f := &some[i]; !f.Over && f.Err == nil && (i == 0 || f.Parts <= smallRecord) {
				f.begin(l, r)
			}
		}
		for i := 0; i < len(some) && size < pageBytes; i++ {
			if err := some[i].finish(l, r); err != nil {
				return nil, true, err
			}
			size += some[i].Bytes
			jobs = all[:len(jobs)+1]
		}
	}
	return jobs, more || len(jobs) < len(all), nil
}

// readFinishedEntries reads the entries of the order for ReadFinishedPage, at least one if there is
// one. It passes over keys that no queue wrote.
func readFinishedEntries(
	l *codec.Layout, r kv.Reader, now time.Time, after *codec.FinishedEntry, most int,
) (jobs []FinishedRead, more bool, err error) {
	keys := l.FinishedOrder()
	if after != nil {
		keys.End = l.FinishedOrderKey(after.Order, &after.Job)
	}
	asked := kv.RangeOptions{Limit: min(finishedPage, most), Reverse: true}

	for more = true; more && len(jobs) == 0; {
		entries, err := r.GetRange(keys, asked).Get()
		if err != nil {
			return nil, true, err
		}
		more = asked.Full(entries)

		for _, pair := range entries {
			keys.End = pair.Key
			e, err := l.ParseFinishedEntry(pair)
			if err == nil || !e.Order.IsZero() {
				over := err == nil && !e.Until.After(now)
				jobs = append(jobs, FinishedRead{FinishedEntry: e, Err: err, Over: over})
			}
		}
	}
	return jobs, more, nil
}

// begin starts to read the record.
func (f *FinishedRead) begin(l *codec.Layout, r kv.Reader) {
	f.parts = r.GetRange(l.FinishedRange(&f.Job), kv.RangeOptions{})
}

// finish reads the record, unless it is over. The error is one of the store.
func (f *FinishedRead) finish(l *codec.Layout, r kv.Reader) error {
	if f.Over || f.Err != nil {
		return nil
	}
	if f.parts == nil {
		f.begin(l, r)
	}

	parts, err := f.parts.Get()
	if err != nil {
		return err
	}
	for _, part := range parts {
		f.Bytes += len(part.Value)
	}
	f.parts = nil
	if f.Record, f.Err = codec.ParseFinished(parts); f.Err != nil {
		f.Err = fmt.Errorf("job %s: %w", f.Job, f.Err)
	}
	return nil
}

// OverBy reports whether the job is not kept any longer.
func (f *FinishedRead) OverBy(now time.Time) bool { return !f.Until.After(now) }

// FinishedLookup is a finished job being looked for by its id, or by its last place.
type FinishedLookup struct {
	l     *codec.Layout
	id    codec.ID
	asked kv.RangeOptions
	pairs kv.Future[[]kv.KeyValue]
}

// BeginFinished starts to read a finished job, about that many bytes of it.
func BeginFinished(l *codec.Layout, r kv.Reader, id *codec.ID, bytes int) *FinishedLookup {
	f := &FinishedLookup{l: l, id: *id, asked: kv.RangeOptions{Bytes: max(bytes, 1)}}
	f.begin(r)
	return f
}

// begin reads both what may be there: the record of a job, and the key by the last place of one.
func (f *FinishedLookup) begin(r kv.Reader) {
	keys := f.l.FinishedRange(&f.id)
	keys.Begin = f.l.FinishedPlaceKey(&f.id)
	f.pairs = r.GetRange(keys, f.asked)
}

// Load waits for the job, and reads the rest of it unless it has more than about most bytes. It
// returns nil if there is none. The error is ErrCorrupt or one of the store.
func (f *FinishedLookup) Load(r kv.Reader, most int) (*FinishedRead, error) {
	pairs, err := f.begun(r)
	if err != nil || len(pairs) == 0 {
		return nil, err
	}
	pairs, cut, err := f.upTo(r, pairs, most)
	if err != nil {
		return nil, err
	}

	if cut {
		record, err := codec.ParseFinishedHead(pairs[0].Value)
		return f.read(record, cut, err)
	}
	record, err := codec.ParseFinished(pairs)
	return f.read(record, cut, err)
}

// LoadOutcome is Load without the message, however long the result is.
func (f *FinishedLookup) LoadOutcome(r kv.Reader) (*FinishedRead, error) {
	pairs, err := f.begun(r)
	if err != nil || len(pairs) == 0 {
		return nil, err
	}
	size, err := codec.OutcomeBytes(pairs[0].Value)
	if err != nil {
		return f.read(nil, false, err)
	}
	if pairs, _, err = f.upTo(r, pairs, size); err != nil {
		return nil, err
	}
	record, err := codec.ParseFinishedOutcome(pairs)
	if err == nil && record.ID != f.id { // the message, which has the id of the job, is not read
		job := f.id
		record.First = &job
	}
	return f.read(record, false, err)
}

// begun waits for the first keys of the record, none if there is none.
func (f *FinishedLookup) begun(r kv.Reader) ([]kv.KeyValue, error) {
	pairs, err := f.pairs.Get()
	if err != nil || len(pairs) == 0 || !bytes.Equal(pairs[0].Key, f.l.FinishedPlaceKey(&f.id)) {
		return pairs, err
	}
	if f.id, err = codec.ParseAlias(pairs[0].Value); err != nil {
		return nil, err
	}
	f.begin(r)
	return f.pairs.Get()
}

// upTo reads on to about most bytes of the record. cut says that there may be more.
func (f *FinishedLookup) upTo(
	r kv.Reader, pairs []kv.KeyValue, most int,
) (all []kv.KeyValue, cut bool, err error) {
	cut = f.asked.Full(pairs)
	left := most - f.asked.Bytes
	if !cut || left <= 0 {
		return pairs, cut, nil
	}
	keys, asked := f.l.FinishedRange(&f.id), kv.RangeOptions{Bytes: left}
	keys.Begin = kv.SingleKey(pairs[len(pairs)-1].Key).End
	more, err := r.GetRange(keys, asked).Get()
	return append(slices.Clip(pairs), more...), asked.Full(more), err
}

// read returns the job of a record. It has no Parts, so that all keys are removed.
func (f *FinishedLookup) read(
	record *codec.Finished, cut bool, err error,
) (*FinishedRead, error) {
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", f.id, err)
	}
	read := &FinishedRead{Record: record, Cut: cut}
	read.Order, read.At, read.Until, read.Job = record.Order, record.At, record.Until, f.id
	if f.id != record.ID {
		read.Place = record.ID
	}
	return read, nil
}
