package bridge

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// partItems is how many items one part of a walk looks at, in a transaction of its own.
	partItems = 500
	// restFactor is how many times as long as a part took the next one waits while there are other
	// requests, up to maxRest.
	restFactor, maxRest = 4, 100 * time.Millisecond
	// maxLooked and maxLookedBytes are how much one request looks at.
	maxLooked, maxLookedBytes = 10_000, 8 << 20
	// maxPage is the most bytes of a reply with items, whatever the server carries.
	maxPage = 1 << 20
)

// decodeItems reads the payload of an items request.
func decodeItems(payload []byte, kind subjects.Kind, name string, c *clientReplier) error {
	o, err := subjects.ParseItemsOptions(payload)
	if err != nil {
		return err
	}

	walk := fdbpq.Browse{State: states[o.State], MaxItems: maxLooked, MaxBytes: maxLookedBytes}
	if o.Max && kind == subjects.FIFO {
		return fmt.Errorf(`%w: end: "max": a FIFO queue is served from its front only: want "min"`, errBadRequest)
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
	if o.Match == "" && len(o.Headers) == 0 { // else it looks for as many
		walk.MaxItems = o.Limit
	}

	b := c.b
	c.inspection = &inspection{browseLimit, func(ctx context.Context) ([]byte, error) {
		return b.inspector.items(ctx, kind, name, &walk, &itemFilter{&o}, b.newItemPage(o.ValueBytes))
	}}
	return nil
}

// items returns a page of the items of a queue, after what is due there was swept.
func (i *inspector) items(
	ctx context.Context, kind subjects.Kind, name string, walk *fdbpq.Browse, filter *itemFilter, page *itemPage,
) (payload []byte, err error) {
	q, err := i.target(kind, name)
	if err != nil {
		return nil, err
	}

	err = i.run(ctx, i.browse, func() error {
		if err := i.sweep(ctx, q); err != nil {
			return err
		}

		end, err := i.walk(ctx, q, walk, func(item *fdbpq.Browsed) bool {
			return len(page.items) < filter.Limit && (!filter.matches(item, &page.e) || page.add(item, 0))
		})
		if err != nil {
			return err
		}

		var next *string
		if end.More {
			id := end.Last.String()
			next = &id
		}
		payload = subjects.EncodeItemsPage(page.items, next, end.Scanned)
		return nil
	})
	return payload, err
}

// walk is fdbpq.Browse.Walk in parts that leave time to others. Where the store is slow, it ends
// early.
func (i *inspector) walk(
	ctx context.Context, q fdbpq.Target, all *fdbpq.Browse, visit func(*fdbpq.Browsed) bool,
) (end fdbpq.BrowseEnd, err error) {
	timeIsUp, part, bytes, stopped := i.halfOf(ctx), *all, 0, false
	for {
		part.MaxItems = min(partItems, all.MaxItems-int(end.Scanned))
		part.MaxBytes = all.MaxBytes - bytes
		var looked fdbpq.BrowseEnd
		err = i.paced(ctx, func() error {
			looked, err = part.Walk(ctx, i.options.DB, q, i.options.Now(), func(item *fdbpq.Browsed) bool {
				if stopped = !visit(item); !stopped {
					bytes += item.Message.Size()
				}
				return !stopped
			})
			return err
		})
		if err != nil {
			return end, err
		}

		end.Scanned += looked.Scanned
		end.Last, end.More = looked.Last, looked.More
		part.After = &end.Last
		if stopped || !end.More || int(end.Scanned) >= all.MaxItems || bytes >= all.MaxBytes || time.Now().After(timeIsUp) {
			return end, nil
		}
	}
}

// paced runs a part of a browse. While there are other requests, browses take a fifth of the time.
// Only who has the slot for browses may call it.
func (i *inspector) paced(ctx context.Context, part func() error) error {
	rest := time.NewTimer(time.Until(i.nextPart))
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-ctx.Done():
		return ctx.Err()
	}

	batches, began := i.batches.Load(), time.Now()
	err := part()
	now := time.Now()

	i.nextPart = now
	if pending, _ := i.dispatcher.Pending(); pending > 0 || i.batches.Load() != batches {
		i.nextPart = now.Add(min(restFactor*now.Sub(began), maxRest))
	}
	return err
}

// halfOf returns the middle of the time that is left.
func (i *inspector) halfOf(ctx context.Context) time.Time {
	end, _ := ctx.Deadline()
	return end.Add(-time.Until(end) / 2)
}

// sweep sweeps a queue if something is due there.
func (i *inspector) sweep(ctx context.Context, q fdbpq.Target) error {
	due, err := kv.ReadTransact(ctx, i.options.DB, func(r kv.Reader) ([]fdbpq.QueueName, error) {
		_, due, err := fdbpq.ReadDue(r, []fdbpq.Op{{Kind: fdbpq.OpLen, Queue: q}}, i.options.Now())
		return due, err
	})
	if err == nil && len(due) > 0 {
		_ = i.dispatcher.Sweeper().Sweep(ctx, due) // else they come as they are
	}
	return err
}

// getItems answers a get of several ids.
func getItems(c *clientReplier, kind subjects.Kind, name string, ids []fdbpq.ID, valueBytes int) *inspection {
	b := c.b
	return &inspection{browseLimit, func(ctx context.Context) (payload []byte, err error) {
		i := b.inspector
		q, err := i.target(kind, name)
		if err != nil {
			return nil, err
		}

		page := b.newItemPage(valueBytes)
		err = i.runPart(ctx, func() error {
			return fdbpq.ReadItems(ctx, i.options.DB, q, ids, i.options.Now(), func(n int, item *fdbpq.Browsed) bool {
				item.ID = ids[n]
				rest := subjects.MaxItemResults(len(ids) - n - 1)
				if !page.add(item, rest) {
					page.addFailure(&ids[n], errNoRoomForReply)
				}
				return true
			})
		})
		return subjects.EncodeItemsPage(page.items, nil, 0), err
	}}
}

// runPart runs a browse that has one part.
func (i *inspector) runPart(ctx context.Context, f func() error) error {
	return i.run(ctx, i.browse, func() error { return i.paced(ctx, f) })
}

// errNoRoomForReply is told of an item that does not fit into the reply to a get of several.
var errNoRoomForReply = fmt.Errorf("%w: the others left no room for it in the reply: get it alone", errTooLarge)

// itemFilter says which items are wanted.
type itemFilter struct{ *subjects.ItemsOptions }

// matches reports whether an item is wanted. Of one that cannot be read, only the id is known.
func (f *itemFilter) matches(item *fdbpq.Browsed, e *encoder) bool {
	if f.Match == "" && len(f.Headers) == 0 {
		return true
	}

	e.stored(&item.Item)
	for name, value := range f.Headers {
		if !slices.Contains(e.header[name], value) {
			return false
		}
	}
	return bytes.Contains(item.Value, []byte(f.Match)) || strings.Contains(item.ID.String(), f.Match) || f.inHeaders(e)
}

// inHeaders reports whether one of the header lines contains the text.
func (f *itemFilter) inHeaders(e *encoder) bool {
	for name, values := range e.header {
		for _, value := range values {
			if strings.Contains(name+": "+value, f.Match) {
				return true
			}
		}
	}
	return false
}

// itemPage collects items for a reply.
type itemPage struct {
	valueBytes int // of each value
	room       int // bytes that are left
	items      [][]byte
	e          encoder
}

func (b *Bridge) newItemPage(valueBytes int) *itemPage {
	room := min(int(b.nc.MaxPayload()), maxPage) - subjects.ItemsPageSize
	return &itemPage{valueBytes: max(valueBytes, 0), room: room}
}

// add adds an item, and leaves room for others. Without room it reports false, but the first item is
// cut.
func (p *itemPage) add(item *fdbpq.Browsed, others int) bool {
	if item.Err != nil {
		p.addFailure(&item.ID, item.Err)
		return true
	}

	stored := p.render(item)
	text := stored.Encode()
	if len(text) >= p.room-others {
		if len(p.items) > 0 {
			return false
		}
		text = p.cut(stored, others)
	}
	p.append(text)
	return true
}

func (p *itemPage) append(text []byte) {
	p.items = append(p.items, text)
	p.room -= len(text) + len(",")
}

// addFailure adds why there is no item.
func (p *itemPage) addFailure(id *fdbpq.ID, err error) {
	stored := subjects.StoredItem{ID: id.String(), Priority: id.Priority, Value: []byte{}, Failure: itemFailure(err)}
	p.append(stored.Encode())
}

// render returns the item as it is sent if there is room. It shares memory with the item and p.
func (p *itemPage) render(item *fdbpq.Browsed) *subjects.StoredItem {
	p.e.stored(&item.Item)
	id := &item.ID
	stored := &subjects.StoredItem{
		ID: id.String(), Priority: id.Priority, State: subjects.State(item.State.String()),
		PushedAt: timeOrNil(item.PushedAt), Due: timeOrNil(item.Due), Expires: timeOrNil(item.Expires),
		Deliveries: item.Deliveries, Reason: item.Reason,
		Size: len(item.Value), Headers: p.e.header, Value: []byte{},
	}

	if dead := item.DeadLetter; dead != nil {
		stored.Reason = cmp.Or(item.Reason, dead.Error, dead.Reason)
	}
	if n := min(len(item.Value), p.valueBytes); n > 0 {
		stored.Value = item.Value[:n]
	}
	stored.ValueCut = len(stored.Value) < stored.Size
	return stored
}

// cut returns an item that does not fit without its headers, and with as much of its value as fits.
func (p *itemPage) cut(stored *subjects.StoredItem, others int) []byte {
	value := stored.Value
	stored.Headers, stored.HeadersCut = nil, len(stored.Headers) > 0
	stored.Value, stored.ValueCut = value[:0], true
	room := p.room - others - len(stored.Encode()) - len(",")

	stored.Value = value[:min(len(value), max(room, 0)/4*3)] // base64
	stored.ValueCut = len(stored.Value) < stored.Size
	return stored.Encode()
}

// timeOrNil returns nil for no time.
func timeOrNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	return &at
}
