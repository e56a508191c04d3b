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
	state.Sought
	index int               // into txn.ops
	id    ID                // of the job, or of the place of its item
	msgID kv.Future[[]byte] // what a message id names; nil for an id
	bytes int               // about how many to read of an item
	rest  state.Stored      // what else belongs to the item
	past  kv.Future[[]byte] // its history, if it is ready

	finished *state.FinishedLookup // nil unless the item is not in the queue
}

// checkMsgID returns an error unless an OpGet can name its item by a message id.
func (op *Op) checkMsgID() error {
	if op.ID != (ID{}) {
		return badOp("an id and a message id: want one of them")
	}
	if n := len(op.Message.MsgID); n > MaxKey {
		return badOp("a message id of %d bytes: want at most %d", n, MaxKey)
	}
	return nil
}

// beginReads implements inspection.
func (g *get) beginReads(bytes int) {
	if g.returned.Refused {
		return
	}
	g.bytes = bytes
	if id := g.ops[g.index].Message.MsgID; id != "" {
		g.msgID = g.snapshot.Get(g.l.MsgIDKey(id))
		return
	}
	g.readAt(&g.id)
}

// readAt starts to read the item at a place.
func (g *get) readAt(place *ID) {
	g.Begin(place, state.LookUp(g.l, g.snapshot, place))
	g.beginRest(g.l, place)
}

// beginRest starts to read what else there is of the item at a place.
func (g *get) beginRest(l *codec.Layout, place *ID) {
	g.rest = state.BeginItem(l, g.snapshot, place, g.bytes)
	g.past = g.snapshot.Get(l.HistoryKey(place))
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
	} else if g.Begun && g.Err == nil {
		if exists, err := g.Exists(); err == nil && !exists {
			g.finished = state.BeginFinished(g.l, g.snapshot, &g.id, g.bytes)
		}
	}
}

// finish implements inspection.
func (g *get) finish() error { return g.failOps(g.find(), g.index) }

// find sets the result. The error is for the operation, or one of the store.
func (g *get) find() error {
	if !g.Begun {
		return state.ErrNoRoom
	}
	h, err := g.Find()
	if h == nil && err == nil {
		found, err := g.findFinished()
		if found || err != nil {
			return err
		}
		return g.findDead()
	}
	if err != nil {
		return err
	}

	item, err := g.whole(g.l, h)
	if err == nil {
		g.found(&item, h, "")
	}
	return err
}

// found sets the result to an item, which is in a queue of that name; "" is its own.
func (g *get) found(item *Item, h *codec.Record, queue string) {
	result := &g.results[g.index]
	result.Item, result.State, result.Queue = *item, h.State, queue
	result.Found = browsed(&state.Standing{Item: *item, Record: *h})
}

// whole returns an item in full, and completes its record. The error is for the operation, or one
// of the store.
func (g *get) whole(l *codec.Layout, h *codec.Record) (Item, error) {
	if h.State == Ready {
		past, err := g.past.Get()
		if err != nil {
			return Item{}, err
		}
		if h.History, err = codec.ParseHistory(&h.ID, past); err != nil {
			return Item{}, err
		}
	}

	g.rest.SetOwn(l, h.Value)
	item, err := g.rest.Whole(g.snapshot, l, &g.returned)
	if err != nil {
		return Item{}, err
	}

	// A leased item never expires.
	if h.State != Leased && codec.Expired(item.Expires, g.now) {
		return Item{}, notFound(&g.id)
	}
	return item, nil
}

// findFinished looks for a job that is not in its queue among those that are finished. The error is
// for the operation, or one of the store.
func (g *get) findFinished() (found bool, err error) {
	if g.finished == nil { // an alias has led to an empty place
		g.finished = state.BeginFinished(g.l, g.snapshot, &g.id, g.bytes)
	}
	most := g.returned.Left()
	if g.returned.Refused {
		most = 0
	}
	f, err := g.finished.Load(g.snapshot, most)
	if f == nil || err != nil || f.OverBy(g.asOf) {
		return false, err
	}

	record := f.Record
	if f.Cut || !g.returned.Admit(record.Message.Size()+len(record.Result)) {
		g.returned.Refused = true
		return true, state.ErrNoRoom
	}
	result := &g.results[g.index]
	result.Item, result.State, result.Found = record.Item, Done, browsedFinished(f)
	return true, nil
}

// findDead looks for a job that is not in its queue among the dead letters. One that has died again
// as a dead letter, or before Settings.DeadLetter was changed, is not found. The error is for the
// operation, or one of the store.
func (g *get) findDead() error {
	if g.tx == nil {
		g.ledger.ReadSettings(g.snapshot, g.l)
	}
	settings, err := g.ledger.Settings()
	if err != nil {
		return err
	}

	dead := g.l.DeadLetters(settings.DeadLetter)
	value, err := g.snapshot.Get(dead.AliasKey(&g.id)).Get()
	if err != nil {
		return err
	}
	if value == nil {
		return notFound(&g.id)
	}
	place, err := codec.ParseAlias(value)
	if err != nil {
		return err
	}

	read := state.LookUp(dead, g.snapshot, &place)
	g.beginRest(dead, &place)
	h, err := read.Anywhere(&place)
	if err != nil {
		return err
	}
	if h == nil {
		return notFound(&g.id)
	}
	item, err := g.whole(dead, h)
	if err != nil {
		return err
	}
	if item.DeadLetter == nil || item.DeadLetter.Queue != g.l.Name() { // of another queue's job
		return notFound(&g.id)
	}

	g.found(&item, h, dead.Name())
	return nil
}
