package requests

import (
	"context"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// decodeList reads the payload of a list.
func decodeList(payload []byte, kind subjects.Kind, c *replier) error {
	o, err := subjects.ParseListOptions(payload)
	if err != nil {
		return err
	}

	i := c.h.Inspector
	c.inspection = &inspection{limit: i.lists, reply: func(ctx context.Context) ([]byte, error) {
		list, err := i.list(ctx, kind, o, true)
		return list.Encode(), err
	}}
	return nil
}

// decodeItems reads the payload of an items request.
func decodeItems(payload []byte, kind subjects.Kind, name string, c *replier) error {
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

	if o.Match == "" && len(o.Headers) == 0 && walk.State <= fdbpq.Ready { // no item is passed over
		walk.MaxItems = o.Limit
	}

	i := c.h.Inspector
	c.inspection = &inspection{limit: i.browses, reply: func(ctx context.Context) ([]byte, error) {
		return i.items(ctx, kind, name, &walk, &o)
	}}
	return nil
}

// look has the inspector run an operation that only reads, as a part of a browse. reply encodes the
// result.
func (c *replier) look(r *subjects.Request, op fdbpq.Op, reply func(*fdbpq.Result) []byte) {
	i, kind, name := c.h.Inspector, r.Kind, r.Queue
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
	c.inspection = &inspection{limit: i.browses, reply: answer}
}

func rankReply(result *fdbpq.Result) []byte {
	return strictjson.Marshal(subjects.Ranked{Rank: result.Rank, AtLeast: result.RankAtLeast})
}

// getItems answers a get of several ids.
func getItems(
	c *replier, kind subjects.Kind, name string, ids []fdbpq.ID, valueBytes int,
) *inspection {
	i := c.h.Inspector
	return &inspection{limit: i.browses, reply: func(ctx context.Context) ([]byte, error) {
		page, looked := i.newPage(valueBytes), 0
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
				return fdbpq.ReadItems(ctx, i.config.DB, q, ids, i.config.Now(), visit)
			})
		}

		for n := len(page.items); n < len(ids); n++ {
			noRoomFor(&ids[n])
		}

		return subjects.EncodeItemsPage(page.items, nil, 0), err
	}}
}

// decodeSchedules reads the payload of a schedules request.
func decodeSchedules(payload []byte, r *subjects.Request, c *replier) error {
	o, err := subjects.ParseSchedulesOptions(payload)
	if err != nil {
		return err
	}

	room := c.h.Inspector.newPage(0).room
	op := fdbpq.Op{Kind: fdbpq.OpSchedules, Record: o.After, MaxBytes: max(room, 1)}
	c.look(r, op, func(result *fdbpq.Result) []byte {
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
