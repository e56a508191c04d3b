package fdbpq

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// get is an OpGet.
type get struct {
	*queueTxn
	state.IDLookup
	index int               // into txn.ops
	id    ID                // of the job, or of the place of its item
	msgID kv.Future[[]byte] // what a message id names; nil for an id
	bytes int               // about how many to read of an item
	in    *codec.Layout     // where the item is: its own queue, or that of the dead letters
	rest  state.ItemRead    // what else belongs to the item
	past  kv.Future[[]byte] // its history, if it is ready

	finished *state.FinishedLookup // nil unless the item is not in its own queue
}

// beginReads implements inspection.
func (g *get) beginReads(bytes int) {
	if g.returned.Refused {
		return
	}
	g.bytes, g.in = bytes, g.l
	if id := g.ops[g.index].Message.MsgID; id != "" {
		g.msgID = g.snapshot.Get(g.l.MsgIDKey(id))
		return
	}
	g.readAt(&g.id)
}

// readAt starts to read the item at a place.
func (g *get) readAt(place *ID) {
	g.Begin(place, state.LookUp(g.in, g.snapshot, place))
	g.rest = state.BeginItem(g.in, g.snapshot, place, g.bytes)
	g.past = g.snapshot.Get(g.in.HistoryKey(place))
}

// beginAlias implements inspection.
func (g *get) beginAlias() {
	if g.msgID != nil {
		g.Err = g.resolve()
	}
	if g.Err == nil {
		g.BeginAlias(g.snapshot, g.l)
	}
}

// resolve waits for what a message id names, and starts to read that. The error is for the
// operation, or one of the store.
func (g *get) resolve() error {
	g.Begun = true
	value, err := g.msgID.Get()
	if err != nil {
		return err
	}
	var seen codec.Seen
	if value != nil {
		if seen, err = codec.ParseSeen(value); err != nil {
			return err
		}
	}
	if !seen.Until.After(g.asOf) {
		return fmt.Errorf("%w: message id %.100q", ErrNotFound, g.ops[g.index].Message.MsgID)
	}
	g.id = seen.ID
	g.readAt(&g.id)
	return nil
}

// follow implements inspection.
func (g *get) follow() {
	if g.Follow() {
		g.readAt(&g.Place)
	} else if g.in == g.l && g.finished == nil && g.missing() {
		g.finished = state.BeginFinished(g.l, g.snapshot, &g.id, g.bytes)
	}
}

// missing reports whether the item is known not to be where it was looked for last.
func (g *get) missing() bool {
	if !g.Begun || g.Err != nil {
		return false
	}
	exists, err := g.Exists()
	return err == nil && !exists
}

// beginElsewhere implements inspection: a job that is neither in its queue nor finished may be a
// dead letter. One that has died again as a dead letter, or before Settings.DeadLetter was changed,
// is not found.
func (g *get) beginElsewhere() {
	if !g.missing() {
		return
	}
	if g.finished == nil { // an alias has led to an empty place
		g.finished = state.BeginFinished(g.l, g.snapshot, &g.id, g.bytes)
	}
	f, err := g.finished.Load(g.snapshot, 0)
	if g.Err = err; err != nil || f != nil && !f.OverBy(g.asOf) {
		return
	}

	if g.tx == nil {
		g.ledger.ReadSettings(g.snapshot, g.l)
	}
	settings, err := g.ledger.Settings()
	if g.Err = err; err == nil {
		g.finished, g.in = nil, g.l.DeadLetters(settings.DeadLetter)
		g.BeginAliasOf(g.snapshot, g.in, &g.id)
	}
}

// finish implements inspection.
func (g *get) finish() error { return g.failOps(g.find(), g.index) }

// find sets the result. The error is for the operation, or one of the store.
func (g *get) find() error {
	switch {
	case !g.Begun:
		return state.ErrNoRoom
	case g.Err == nil && g.finished != nil:
		return g.findFinished()
	}
	h, err := g.Find()
	if err == nil && (h == nil || g.ops[g.index].misses(&h.ID)) {
		err = notFound(&g.id)
	}
	if err != nil {
		return err
	}

	item, err := g.whole(h)
	if err != nil {
		return err
	}
	found := state.ListedItem{Item: item, Record: *h}
	if !g.ops[g.index].NoValue {
		read := state.BeginAttempts(g.in, g.snapshot, h)
		found.Attempts, err = read.OfAllLives(g.snapshot, &item.Message)
	}
	switch {
	case err != nil:
		return err
	case g.in == g.l:
		g.found(&found, "")
	case item.DeadLetter == nil || item.DeadLetter.Queue != g.l.Name(): // of another queue's job
		return notFound(&g.id)
	default:
		g.found(&found, g.in.Name())
	}
	return nil
}

// found sets the result to an item, which is in a queue of that name; "" is its own.
func (g *get) found(s *state.ListedItem, queue string) {
	result := &g.results[g.index]
	result.Item, result.State, result.Queue = s.Item, s.State, queue
	result.Found = browsed(s)
}

// whole returns an item in full, or without its value, and completes its record. The error is for
// the operation, or one of the store.
func (g *get) whole(h *codec.Record) (Item, error) {
	if h.State == Ready {
		past, err := g.past.Get()
		if err != nil {
			return Item{}, err
		}
		if h.History, err = codec.ParseHistory(&h.ID, past); err != nil {
			return Item{}, err
		}
	}

	g.rest.SetOwn(g.in, h.Value)
	item, err := g.readItem()
	if err != nil {
		return Item{}, err
	}

	// A leased item does not expire. A lease that is over only keeps it until somebody sweeps.
	leased := h.State == Leased && h.Due.After(g.asOf)
	if !leased && codec.Expired(item.Expires, g.asOf) {
		return Item{}, notFound(&g.id)
	}
	return item, nil
}

// readItem waits for the item, and reads on if that is needed. The error is for the operation, or
// one of the store.
func (g *get) readItem() (Item, error) {
	if !g.ops[g.index].NoValue {
		return g.rest.Whole(g.snapshot, g.in, &g.returned)
	}

	if err := g.rest.ReadHeaders(g.snapshot, g.in); err != nil {
		return Item{}, err
	}
	item := g.rest.Item
	item.Value = nil
	if !g.returned.Admit(item.Message.Size()) {
		return Item{}, state.ErrNoRoom
	}
	return item, g.rest.Err
}

// findFinished sets the result to a finished job. The error is for the operation, or one of the
// store.
func (g *get) findFinished() error {
	f, err := g.loadFinished()
	if err != nil {
		return err
	}

	record := f.Record
	if g.ops[g.index].misses(&record.ID) {
		return notFound(&g.id)
	}
	if f.Cut || !g.returned.Admit(record.Message.Size()+len(record.Result)) {
		g.returned.Refused = true
		return state.ErrNoRoom
	}
	result := &g.results[g.index]
	result.Item, result.State, result.Found = record.Item, Done, browsedFinished(f)
	return nil
}

// loadFinished reads as much of a finished job as the operation asks for, and has room for.
func (g *get) loadFinished() (*state.FinishedRead, error) {
	switch {
	case g.ops[g.index].NoValue:
		return g.finished.LoadOutcome(g.snapshot)
	case g.returned.Refused:
		return g.finished.Load(g.snapshot, 0)
	}
	return g.finished.Load(g.snapshot, g.returned.Left())
}
