package requests

import (
	"cmp"
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// decodeList reads the payload of a list.
func (q *request) decodeList(m *nats.Msg) error {
	o, err := subjects.ParseListOptions(m.Data)
	if err != nil {
		return err
	}

	i, kind := q.h.Inspector, q.parsed.Kind
	q.inspection = &inspection{limit: i.lists, reply: func(ctx context.Context) ([]byte, error) {
		list, err := i.list(ctx, kind, o, true)
		return list.Encode(), err
	}}
	return nil
}

// decodeItems reads the payload of an items request.
func (q *request) decodeItems(m *nats.Msg) error {
	i, kind, name := q.h.Inspector, q.parsed.Kind, q.parsed.Queue
	o, err := subjects.ParseItemsOptions(m.Data)
	if err != nil {
		return err
	}

	walk := fdbpq.Browse{State: states[o.State], MaxItems: maxLooked, MaxBytes: maxLookedBytes}
	walk.Trail = o.Attempts
	if o.Max && kind == subjects.FIFO {
		return badRequest(`end: "max": a FIFO queue is served from its front only: want "min"`)
	} else if o.Max {
		walk.End = fdbpq.Back
	}

	if o.Max && walk.State == fdbpq.Done {
		return badRequest(`end: "max", with state "done": these jobs always come newest first: ` +
			`leave out end`)
	}

	if err := setAfter(&walk, o.After); err != nil {
		return fmt.Errorf("after: %w", err)
	}

	passesOver := walk.State == fdbpq.Delayed || walk.State == fdbpq.Leased
	if o.Match == "" && len(o.Headers) == 0 && !passesOver {
		walk.MaxItems = o.Limit
	}

	q.inspection = &inspection{limit: i.browses, reply: func(ctx context.Context) ([]byte, error) {
		return i.items(ctx, kind, name, &walk, &o)
	}}
	return nil
}

// look has the inspector run an operation that only reads, as a part of a browse. reply encodes the
// result.
func (q *request) look(op fdbpq.Op, reply func(*fdbpq.Result) []byte) {
	i, kind, name := q.h.Inspector, q.parsed.Kind, q.parsed.Queue
	answer := func(ctx context.Context) (payload []byte, err error) {
		if op.Queue, err = i.swept(ctx, kind, name); err != nil {
			return nil, err
		}
		err = i.paced(ctx, func() error {
			result, err := i.read(ctx, op)
			if err == nil {
				payload = reply(&result)
			}
			return err
		})
		return payload, err
	}
	q.inspection = &inspection{limit: i.browses, reply: answer}
}

// getItems has the inspector answer a get of several ids or places.
func (q *request) getItems(ids []fdbpq.ID, o *subjects.ItemOptions) {
	i, kind, name := q.h.Inspector, q.parsed.Kind, q.parsed.Queue
	q.inspection = &inspection{limit: i.browses, reply: func(ctx context.Context) ([]byte, error) {
		page, looked := i.newPage(o.ValueBytes, true), 0
		fail := func(id *fdbpq.ID, err error) {
			page.append(failedItem(id, o.AtPlace, err).Encode())
		}
		visit := func(n int, item *fdbpq.Browsed) bool {
			if item.Err != nil || o.AtPlace && item.ID != ids[n] {
				fail(&ids[n], cmp.Or(item.Err, fmt.Errorf("%w: %v", fdbpq.ErrNotFound, ids[n])))
				return true
			}
			if !page.add(item, maxItemFailure*(len(ids)-n-1)) {
				fail(&ids[n], errNoRoomForReply)
			}
			looked += item.Message.Size()
			return looked < maxLookedBytes
		}

		queue, err := i.swept(ctx, kind, name)
		if err == nil {
			err = i.paced(ctx, func() error {
				return fdbpq.ReadItems(ctx, i.config.DB, queue, ids, i.config.Now(), visit)
			})
		}

		for n := len(page.items); n < len(ids); n++ {
			fail(&ids[n], errNoRoomForReply)
		}

		return subjects.EncodeItemsPage(page.items, nil, 0), err
	}}
}

// decodeSchedules reads the payload of a schedules request.
func (q *request) decodeSchedules(m *nats.Msg) error {
	o, err := subjects.ParseSchedulesOptions(m.Data)
	if err != nil {
		return err
	}

	room := q.h.Inspector.newPage(0, false).room
	op := fdbpq.Op{Kind: fdbpq.OpSchedules, Record: o.After, MaxBytes: max(room, 1)}
	q.look(op, func(result *fdbpq.Result) []byte {
		return schedulesPage(result.Records, o, room)
	})

	return nil
}

// states has the state that each name stands for.
var states = map[subjects.State]fdbpq.ItemState{
	"":                    fdbpq.AnyState,
	subjects.StateReady:   fdbpq.Ready,
	subjects.StateDelayed: fdbpq.Delayed,
	subjects.StateLeased:  fdbpq.Leased,
	subjects.StateDone:    fdbpq.Done,
}
