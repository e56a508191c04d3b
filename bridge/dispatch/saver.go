package dispatch

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// saver saves what this process counts, once a minute while there is traffic and at the end, so
// that the windows of traffic outlive the process: another one takes them over.
//
// # Who has the counts
//
// A process writes rows under an id that nobody else uses. Its record says whose rows are in its
// windows: its own, and those it has taken over. To take over is to remove another record, and to
// name its rows in one's own. Whoever writes rows or takes over conflicts with changes of the
// records that this is about. So every row is in one record, and nobody adds rows to those that
// were taken over.
//
// Others may take the record of a process that has ended in order, and of one that is gone: it is
// not among the members, and has not written for goneAfter, by the clock of the process that looks.
// In a store that is not shared, all others are gone. A process whose record was taken although it
// lives, for example because it stood still, finds it missing. Then it empties its windows, and
// goes on under another id.
//
// # When it looks
//
// At the start, when it writes its record; whenever it saves; and before traffic is shown if it has
// not looked for restAfter. Otherwise nothing runs.
//
// # Keys
//
// All are below ("pq-store", "traffic"), with values in JSON. Minutes and hours are counted from
// 1970.
//
//	(0, id)                  = savedRecord
//	(1, id, 0, minute, part) = savedRow: what was counted in a minute
//	(1, id, 1, hour, part)   = savedRow: the same in an hour, written again with each minute
type saver struct {
	d *shared

	mu struct {
		sync.Mutex // held during a step
		open       bool
		looked     time.Time
		id         string
		known      bool            // the record was written: if it is missing, it was taken
		held       map[string]bool // ids of others whose rows are in the windows
	}
}

// savedRecord says whose rows a process has in its windows.
type savedRecord struct {
	ID     string `json:"id"`
	Bridge string `json:"bridge,omitempty"` // Options.ID of the process; "" once it has ended
	Time   int64  `json:"time"`             // when it was written, in seconds from 1970
	Since  int64  `json:"since"`            // traffic.since
	// Rows has the last minute of the rows of each id.
	Rows map[string]int64 `json:"rows"`
}

// savedRow is a part of what was counted in a minute or an hour.
type savedRow struct {
	At     int64        `json:"at"`
	Hour   bool         `json:"hour,omitzero"`
	Queues []savedCount `json:"queues"`
	// CompleteFrom is traffic.completeFrom.
	CompleteFrom int64 `json:"complete_from,omitzero"`
}

// savedCount is what was counted of a queue; without a name, of all together.
type savedCount struct {
	fdbpq.QueueName
	subjects.Traffic
}

const (
	// goneAfter is how long a process that is not among the members may write nothing before
	// another takes over its rows. With restAfter, that is within three minutes.
	goneAfter = 2 * time.Minute
	// restAfter is how long a process that is asked for traffic need not look again, and askTime is
	// how long a look may hold up the answer.
	restAfter = time.Minute
	askTime   = 100 * time.Millisecond
	// partQueues is how many queues fit into a value, however long their names are.
	partQueues = 90
)

func newSaver(d *shared) *saver {
	s := &saver{d: d}
	s.begin()
	return s
}

// begin begins to write under an id that is new.
func (s *saver) begin() { s.mu.id, s.mu.known, s.mu.held = rand.Text(), false, map[string]bool{} }

// run looks and saves until ctx ends.
func (s *saver) run(ctx context.Context) {
	for {
		s.mu.Lock()
		s.mu.open = true
		s.step(ctx, false)
		s.mu.Unlock()

		select {
		case <-ctx.Done():
			return
		case <-s.d.traffic.woken:
		}
		if !signal.Pause(ctx, s.d.traffic.untilNext(s.d.options.Now())) {
			return
		}
	}
}

// refresh looks before traffic is shown, unless the last look was within restAfter.
func (s *saver) refresh() {
	if !s.mu.TryLock() {
		return // it looks just now
	}
	defer s.mu.Unlock()
	if s.mu.open && s.d.options.Now().Sub(s.mu.looked) >= restAfter {
		ctx, cancel := context.WithTimeout(context.Background(), askTime)
		defer cancel()
		s.step(ctx, false)
	}
}

// end saves the rest, and leaves all rows that this process has to others.
func (s *saver) end(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.open {
		s.step(ctx, true)
	}
	s.mu.open = false
}

// step saves what is not saved, and takes over what it may, unless this is the end.
func (s *saver) step(ctx context.Context, atEnd bool) {
	ctx, cancel := context.WithTimeout(ctx, s.d.options.RequestTimeout)
	defer cancel()

	s.mu.looked = s.d.options.Now()
	t := s.d.traffic.lock(s.mu.looked)
	minute, rows := t.minute, t.unsavedLocked()
	mine := savedRecord{
		ID: s.mu.id, Bridge: s.d.options.ID, Time: s.mu.looked.Unix(), Since: t.since,
	}
	t.mu.Unlock()
	if atEnd {
		mine.Bridge = ""
	}

	saved, err := kv.Transact(ctx, s.d.options.DB,
		func(tx kv.Transaction) (bool, error) { return s.write(tx, &mine, minute, rows) })

	t.lock(s.mu.looked)
	switch {
	case err != nil:
		s.mu.known = s.mu.known || kv.MaybeCommitted(err)
	case saved:
		s.mu.known = true
		if len(rows) > 0 {
			t.savedLocked(rows[0].Queues)
		}
		t.since = min(t.since, mine.Since)
	default:
		t.dropLocked()
		s.begin()
	}
	t.mu.Unlock()

	if saved {
		err = s.take(ctx, &mine)
	} else if err == nil {
		s.step(ctx, atEnd)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		signal.To(t.woken) // the next minute tries again
		s.d.options.Warn("counts of traffic could not be saved or taken over", "error", err)
	}
}

// write does what a step does to the store: it takes over records, saves rows, and removes those
// that are out of all windows. It completes the record. It returns false, and writes nothing, if
// the record was taken.
func (s *saver) write(
	tx kv.Transaction, mine *savedRecord, minute int64, rows []savedRow,
) (saved bool, err error) {
	all, err := scan[savedRecord](tx.Snapshot(), kv.Range{Begin: s.key(0), End: s.key(1)})
	at := slices.IndexFunc(all, func(r savedRecord) bool { return r.ID == mine.ID })
	tx.AddReadConflict(kv.SingleKey(s.key(0, mine.ID)))
	if err != nil || at < 0 && s.mu.known {
		return false, err
	}

	mine.Rows = map[string]int64{}
	if at >= 0 {
		maps.Copy(mine.Rows, all[at].Rows)
	}
	before := maps.Clone(mine.Rows)

	for i := range all {
		r := &all[i]
		mine.Since = min(mine.Since, r.Since)
		if i != at && mine.Bridge != "" && s.isGone(r, mine.Time) {
			maps.Copy(mine.Rows, r.Rows)
			tx.AddReadConflict(kv.SingleKey(s.key(0, r.ID)))
			tx.Clear(s.key(0, r.ID))
		}
	}
	for id, last := range mine.Rows {
		if last <= minute-hours*60 {
			delete(mine.Rows, id)
			tx.ClearRange(kv.Range{Begin: s.key(1, id), End: s.key(1, id, 2)})
		}
	}

	for i := range rows {
		kind, first := 0, minute-minutes
		if rows[i].Hour {
			kind, first = 1, minute/60-hours
		}
		mine.Rows[mine.ID] = minute
		tx.ClearRange(kv.Range{Begin: s.key(1, mine.ID, kind), End: s.key(1, mine.ID, kind, first)})
		s.put(tx, kind, rows[i])
	}

	changed := at < 0 || len(rows) > 0 || !maps.Equal(before, mine.Rows)
	if changed || mine.Bridge == "" {
		value, _ := json.Marshal(mine) // never an error
		tx.Set(s.key(0, mine.ID), value)
	}
	return true, nil
}

// isGone reports whether this process may take the record of another id. One of its own is from a
// commit that was taken for lost.
func (s *saver) isGone(r *savedRecord, now int64) bool {
	o := &s.d.options
	if r.Bridge == "" || r.Bridge == o.ID || !o.DB.Traits().Shared {
		return true
	}
	return now-r.Time >= int64(goneAfter/time.Second) && !o.Member(r.Bridge)
}

// put writes a row.
func (s *saver) put(tx kv.Transaction, kind int, row savedRow) {
	part, queues := 0, row.Queues
	for row.Queues = range slices.Chunk(queues, partQueues) {
		value, _ := json.Marshal(row) // never an error
		tx.Set(s.key(1, s.mu.id, kind, row.At, part), value)
		part++
	}
}

// take adds the rows that are named in the record to the windows, unless they are there.
func (s *saver) take(ctx context.Context, mine *savedRecord) error {
	for id := range mine.Rows {
		if id == mine.ID || s.mu.held[id] {
			continue
		}
		keys := kv.Range{Begin: s.key(1, id), End: s.key(1, id, 2)}
		rows, err := kv.ReadTransact(ctx, s.d.options.DB,
			func(r kv.Reader) ([]savedRow, error) { return scan[savedRow](r, keys) })
		if err != nil {
			return err
		}

		s.mu.held[id] = true
		for i := range rows { // lanes wait for one at most
			t := s.d.traffic.lock(s.d.options.Now())
			t.takeLocked(&rows[i])
			t.mu.Unlock()
		}
	}
	return nil
}

// key returns a key.
func (s *saver) key(elements ...any) []byte { return s.d.options.Keyspace.TrafficKey(elements...) }

// scan returns all values of a range.
func scan[T any](r kv.Reader, keys kv.Range) ([]T, error) {
	pairs, err := r.GetRange(keys, kv.RangeOptions{}).Get()
	all := make([]T, len(pairs))
	for i := range pairs {
		err = cmp.Or(err, json.Unmarshal(pairs[i].Value, &all[i]))
	}
	return all, err
}
