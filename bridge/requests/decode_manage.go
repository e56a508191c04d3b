package requests

import (
	"fmt"
	"math"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// decodeSettings reads a change of settings.
func (q *request) decodeSettings(m *nats.Msg) error {
	if len(m.Data) == 0 {
		return nil
	}

	change, err := subjects.ParseChange(m.Data)
	q.ops[0].Kind, q.ops[0].Configure = fdbpq.OpConfigure, change.Apply
	return err
}

// decodeInfo has the request read the settings and the consumers as well.
func (q *request) decodeInfo(*nats.Msg) error {
	q.ops = append(q.ops, fdbpq.Op{Kind: fdbpq.OpSettings}, fdbpq.Op{Kind: fdbpq.OpConsumers})
	return nil
}

// decodePurge reads the payload of a purge. A purge of a state has to find the items first.
func (q *request) decodePurge(m *nats.Msg) error {
	state, err := subjects.ParsePurge(m.Data)
	of := states[state]
	if err != nil || state == "" {
		return err
	}
	if of == fdbpq.Done { // all at once
		q.ops[0].State = of
		return nil
	}

	found := bulkEdit{
		op: fdbpq.Op{Kind: fdbpq.OpRemove, State: of}, state: of, max: math.MaxInt64,
	}
	q.inspection = found.inspection(q.h.Inspector, &q.parsed, func(done int64, more bool) []byte {
		return strictjson.Marshal(subjects.Purged{Purged: done, More: more})
	})

	return nil
}

// decodeItem reads the payload of an operation on one item or on several, or of a redrive.
func (q *request) decodeItem(m *nats.Msg) error {
	op, r := &q.ops[0], &q.parsed
	o, err := subjects.ParseItemOptions(r.Verb, m.Data)
	if err != nil {
		return err
	}

	q.frames = o.Frames
	op.Priority, op.State, op.AtPlace = o.Priority, states[o.State], o.AtPlace
	if o.Max {
		op.End = fdbpq.Back
	}

	if r.Verb == subjects.Redrive {
		op.DropHeader = subjects.OfPushAlone
	}

	switch {
	case o.IDs == nil && r.Verb == subjects.Redrive: // has to find the dead letters first
		letters := bulkEdit{op: *op, state: fdbpq.Ready, max: int64(o.Most)}
		q.inspection = letters.inspection(q.h.Inspector, r, func(done int64, more bool) []byte {
			return strictjson.Marshal(subjects.Redriven{Redriven: done, More: more})
		})

		return nil
	case o.MsgID != "":
		op.Message.MsgID = o.MsgID
		return nil
	case o.IDs == nil:
		op.ID, err = parseName(o.ID, o.AtPlace)
		if r.Verb == subjects.Rank {
			op.Kind = fdbpq.OpRank
			q.look(*op, func(result *fdbpq.Result) []byte {
				return strictjson.Marshal(subjects.Ranked{
					Rank: result.Rank, AtLeast: result.RankAtLeast,
				})
			})
		}

		return err
	}

	return q.decodeIDs(o)
}

// parseName reads the id of a job, or the place of an item.
func parseName(text string, isPlace bool) (fdbpq.ID, error) {
	id, err := fdbpq.ParseID(text)
	if err == nil && !isPlace && fdbpq.Moved(&id) {
		err = badRequest("%s is no id, but the place of an item that has moved: "+
			"want the id of its job", text)
	}
	return id, err
}

// decodeIDs makes an operation like the first for each of several ids or places.
func (q *request) decodeIDs(o subjects.ItemOptions) error {
	ids, of := make([]fdbpq.ID, len(o.IDs)), "ids"
	if o.AtPlace {
		of = "places"
	}
	for i, text := range o.IDs {
		id, err := fdbpq.ParseID(text)
		if err != nil {
			return fmt.Errorf("%s: element %d: %w", of, i, err)
		}
		ids[i] = id
	}

	size, most := subjects.MaxItemResults(len(ids)), q.h.config.MaxPayload()
	if int64(size) > most {
		return fmt.Errorf("%w: a reply with %d results can have %d bytes, and the server "+
			"carries at most %d: send fewer ids at once", errTooLarge, len(ids), size, most)
	}

	if q.ops[0].Kind == fdbpq.OpGet {
		q.getItems(ids, &o)
		return nil
	}

	q.Each = true
	q.ops = slices.Repeat(q.ops, len(ids))
	for i := range q.ops {
		q.ops[i].ID = ids[i]
		// A damaged item that has moved is listed with its place only, and clients name it by that.
		q.ops[i].AtPlace = o.AtPlace || fdbpq.Moved(&ids[i])
	}

	return nil
}
