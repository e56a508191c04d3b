package bridge

import (
	"context"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// decodeList reads the payload of a list.
func decodeList(payload []byte, kind subjects.Kind, c *clientReplier) error {
	o, err := subjects.ParseListOptions(payload)
	if err != nil {
		return err
	}

	i := c.b.inspector
	c.inspection = &inspection{i.lists, func(ctx context.Context) ([]byte, error) {
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

	if o.Match == "" && len(o.Headers) == 0 && walk.State <= fdbpq.Ready { // it passes over none
		walk.MaxItems = o.Limit
	}

	b := c.b
	c.inspection = &inspection{b.inspector.browses, func(ctx context.Context) ([]byte, error) {
		page := newItemPage(o.ValueBytes, b.nc.MaxPayload())
		return b.inspector.items(ctx, kind, name, &walk, &itemFilter{&o}, page)
	}}
	return nil
}

// look has the inspector run an operation that only reads, as a part of a browse, and answer with
// what reply makes of the result.
func (c *clientReplier) look(r *subjects.Request, op fdbpq.Op, reply func(*fdbpq.Result) []byte) {
	i, kind, name := c.b.inspector, r.Kind, r.Queue
	c.inspection = &inspection{i.browses, func(ctx context.Context) (payload []byte, err error) {
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
	}}
}

func rankReply(result *fdbpq.Result) []byte {
	return subjects.EncodeReply(subjects.Ranked{Rank: result.Rank, AtLeast: result.RankAtLeast})
}

// getItems answers a get of several ids.
func getItems(
	c *clientReplier, kind subjects.Kind, name string, ids []fdbpq.ID, valueBytes int,
) *inspection {
	b, i := c.b, c.b.inspector
	return &inspection{i.browses, func(ctx context.Context) ([]byte, error) {
		page, looked := newItemPage(valueBytes, b.nc.MaxPayload()), 0
		noRoomFor := func(id *fdbpq.ID) { page.append(failedItem(id, errNoRoomForReply).Encode()) }
		visit := func(n int, item *fdbpq.Browsed) bool {
			if !page.add(item, maxItemFailure*(len(ids)-n-1)) {
				noRoomFor(&ids[n])
			}
			looked += item.Message.Size()
			return looked < maxLookedBytes
		}

		q, err := i.swept(ctx, kind, name)
		if err == nil {
			err = i.paced(ctx, func() error {
				return fdbpq.ReadItems(ctx, i.options.DB, q, ids, i.options.Now(), visit)
			})
		}

		for n := len(page.items); n < len(ids); n++ {
			noRoomFor(&ids[n])
		}

		return subjects.EncodeItemsPage(page.items, nil, 0), err
	}}
}

// decodeSchedules reads the payload of a schedules request.
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
