package requests

import (
	"fmt"
	"math"
	"slices"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// decodeSettings reads a change of settings.
func decodeSettings(m *nats.Msg, op *fdbpq.Op) error {
	if len(m.Data) == 0 {
		return nil
	}

	change, err := subjects.ParseChange(m.Data)
	if err != nil {
		return err
	}

	op.Kind, op.Configure = fdbpq.OpConfigure, change.Apply
	return nil
}

// decodePurge reads the payload of a purge. A purge of a state has to find the items first.
func decodePurge(m *nats.Msg, r *subjects.Request, c *replier, ops []fdbpq.Op) error {
	state, err := subjects.ParsePurge(m.Data)
	of := states[state]
	if err != nil || state == "" {
		return err
	}
	if of == fdbpq.Done { // all at once
		ops[0].State = of
		return nil
	}

	found := bulkEdit{
		op: fdbpq.Op{Kind: fdbpq.OpRemove, State: of}, state: of, max: math.MaxInt64,
		audited: c.audited,
	}
	c.inspection = found.inspection(c.h.Inspector, r, func(done int64, more bool) []byte {
		return strictjson.Marshal(subjects.Purged{Purged: done, More: more})
	})

	return nil
}

// decodeItem reads the payload of an operation on one item or on several, or of a redrive.
func decodeItem(
	m *nats.Msg, r *subjects.Request, c *replier, request *dispatch.Request, ops []fdbpq.Op,
) ([]fdbpq.Op, error) {
	o, err := subjects.ParseItemOptions(r.Verb, m.Data)
	if err != nil {
		return nil, err
	}

	op := &ops[0]
	op.Priority, op.State, op.AtPlace = o.Priority, states[o.State], o.AtPlace
	if o.Max {
		op.End = fdbpq.Back
	}

	if r.Verb == subjects.Redrive {
		op.DropHeader = subjects.OfPushAlone
	}

	switch {
	case o.IDs == nil && r.Verb == subjects.Redrive: // has to find the dead letters first
		letters := bulkEdit{op: *op, state: fdbpq.Ready, max: int64(o.Most), audited: c.audited}
		c.inspection = letters.inspection(c.h.Inspector, r, func(done int64, more bool) []byte {
			return strictjson.Marshal(subjects.Redriven{Redriven: done, More: more})
		})

		return ops, nil
	case o.MsgID != "":
		op.Message.MsgID = o.MsgID
		return ops, nil
	case o.IDs == nil:
		op.ID, err = parseName(o.ID, o.AtPlace)
		if r.Verb == subjects.Rank {
			op.Kind = fdbpq.OpRank
			c.look(r, *op, rankReply)
		}

		return ops, err
	}

	return decodeIDs(o, r, c, request, ops)
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

// decodeIDs makes an operation for each of several ids or places, like the one in ops.
func decodeIDs(
	o subjects.ItemOptions, r *subjects.Request, c *replier, request *dispatch.Request,
	ops []fdbpq.Op,
) ([]fdbpq.Op, error) {
	ids, of := make([]fdbpq.ID, len(o.IDs)), "ids"
	if o.AtPlace {
		of = "places"
	}
	for i, text := range o.IDs {
		id, err := fdbpq.ParseID(text)
		if err != nil {
			return nil, fmt.Errorf("%s: element %d: %w", of, i, err)
		}
		ids[i] = id
	}

	size, most := subjects.MaxItemResults(len(ids)), c.h.config.MaxPayload()
	if int64(size) > most {
		return nil, fmt.Errorf("%w: a reply with %d results can have %d bytes, and the server "+
			"carries at most %d: send fewer ids at once", errTooLarge, len(ids), size, most)
	}

	if ops[0].Kind == fdbpq.OpGet {
		c.inspection = getItems(c, r.Kind, r.Queue, ids, &o)
		return ops, nil
	}

	request.Each = true
	all := slices.Repeat(ops, len(ids))
	for i := range all {
		all[i].ID = ids[i]
		// A damaged item that has moved is listed with its place only, and clients name it by that.
		all[i].AtPlace = o.AtPlace || fdbpq.Moved(&ids[i])
	}

	return all, nil
}
