package bridge

import (
	"cmp"
	"context"
	"fmt"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// decodeList reads the payload of a list.
func decodeList(payload []byte, kind subjects.Kind, c *clientReplier) error {
	o, err := subjects.ParseListOptions(payload)
	if err != nil {
		return err
	}

	i := c.b.inspector
	c.inspection = &inspection{listLimit, func(ctx context.Context) ([]byte, error) {
		list, err := i.list(ctx, kind, o, true)
		return list.Encode(), err
	}}
	return nil
}

// decodeItems reads the payload of an items request.
func decodeItems(payload []byte, kind subjects.Kind, name string, c *clientReplier) error {
	o, err := subjects.ParseItemsOptions(payload)
	if err != nil {
		return err
	}

	walk := fdbpq.Browse{State: states[o.State], MaxItems: maxLooked, MaxBytes: maxLookedBytes}
	if o.Max && kind == subjects.FIFO {
		return badRequest(`end: "max": a FIFO queue is served from its front only: want "min"`)
	} else if o.Max {
		walk.End = fdbpq.Back
	}
	if o.After != "" {
		after, err := fdbpq.ParseID(o.After)
		if err != nil {
			return fmt.Errorf("after: %w", err)
		}
		walk.After = &after
	}
	if o.Match == "" && len(o.Headers) == 0 && walk.State <= fdbpq.Ready { // else it passes over others
		walk.MaxItems = o.Limit
	}

	b := c.b
	c.inspection = &inspection{browseLimit, func(ctx context.Context) ([]byte, error) {
		page := newItemPage(o.ValueBytes, b.nc.MaxPayload())
		return b.inspector.items(ctx, kind, name, &walk, &itemFilter{&o}, page)
	}}
	return nil
}

// look has the inspector run an operation that only reads, as a part of a browse, and answer with
// what reply makes of the result.
func (c *clientReplier) look(r *subjects.Request, op fdbpq.Op, reply func(*fdbpq.Result) []byte) {
	i, kind, name := c.b.inspector, r.Kind, r.Queue
	c.inspection = &inspection{browseLimit, func(ctx context.Context) (payload []byte, err error) {
		if op.Queue, err = dispatch.TargetOf(i.options.Keyspace, kind, name); err != nil {
			return nil, err
		}
		if err := i.sweep(ctx, op.Queue); err != nil {
			return nil, err
		}
		err = i.paced(ctx, func() error {
			results, err := kv.ReadTransact(ctx, i.options.DB, func(r kv.Reader) ([]fdbpq.Result, error) {
				return fdbpq.Read(r, []fdbpq.Op{op})
			})
			if err != nil || results[0].Err != nil {
				return cmp.Or(err, results[0].Err)
			}
			payload = reply(&results[0])
			return nil
		})
		return payload, err
	}}
}

func rankReply(result *fdbpq.Result) []byte {
	return subjects.EncodeReply(subjects.Ranked{Rank: result.Rank, AtLeast: result.RankAtLeast})
}

// getItems answers a get of several ids.
func getItems(c *clientReplier, kind subjects.Kind, name string, ids []fdbpq.ID, valueBytes int) *inspection {
	b := c.b
	return &inspection{browseLimit, func(ctx context.Context) (payload []byte, err error) {
		i := b.inspector
		q, err := dispatch.TargetOf(i.options.Keyspace, kind, name)
		if err != nil {
			return nil, err
		}

		page, looked := newItemPage(valueBytes, b.nc.MaxPayload()), 0
		noRoomFor := func(id *fdbpq.ID) { page.append(failedItem(id, errNoRoomForReply).Encode()) }
		read := func() error {
			return fdbpq.ReadItems(ctx, i.options.DB, q, ids, i.options.Now(), func(n int, item *fdbpq.Browsed) bool {
				if !page.add(item, maxItemFailure*(len(ids)-n-1)) {
					noRoomFor(&ids[n])
				}
				looked += item.Message.Size()
				return looked < maxLookedBytes
			})
		}
		if err = i.sweep(ctx, q); err == nil {
			err = i.paced(ctx, read)
		}
		for n := len(page.items); n < len(ids); n++ {
			noRoomFor(&ids[n])
		}
		return subjects.EncodeItemsPage(page.items, nil, 0), err
	}}
}

// decodeSchedules reads the payload of a schedules.
func decodeSchedules(payload []byte, r *subjects.Request, c *clientReplier) error {
	o, err := subjects.ParseListOptions(payload)
	if err != nil {
		return err
	}
	room := newItemPage(0, c.b.nc.MaxPayload()).room
	c.look(r, fdbpq.Op{Kind: fdbpq.OpSchedules}, func(result *fdbpq.Result) []byte {
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
}
