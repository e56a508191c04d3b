package requests

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// partItems and partBytes limit one part of a walk.
	partItems, partBytes = 500, 1 << 20
	// While there are other requests, a part of a walk rests RestFactor times as long as the part
	// before took, up to maxRest. The bridge rests as long after statistics about many queues.
	RestFactor, maxRest = 9, 250 * time.Millisecond
	// maxLooked and maxLookedBytes limit how much one request looks at.
	maxLooked, maxLookedBytes = 10_000, 8 << 20
	// pageTime is after how long a page ends early, so that a search under load shows some results.
	pageTime = 500 * time.Millisecond
	// maxPage is the most bytes of a reply with items, whatever the server carries.
	maxPage = 1 << 20
	// maxItemFailure limits the bytes of a failedItem.
	maxItemFailure = 512
)

// items sweeps a queue and returns a page of its items.
func (i *Inspector) items(
	ctx context.Context, kind subjects.Kind, name string,
	walk *fdbpq.Browse, wanted *subjects.ItemsOptions,
) (payload []byte, err error) {
	q, err := i.swept(ctx, kind, name)
	if err != nil {
		return nil, err
	}

	page := i.newPage(wanted.ValueBytes, wanted.Attempts)
	end, err := i.walk(ctx, q, walk, func(item *fdbpq.Browsed) bool {
		if len(page.items) >= wanted.Limit {
			return false
		}
		return !page.e.matches(item, wanted) || page.add(item, 0)
	})
	if err != nil {
		return nil, err
	}

	return subjects.EncodeItemsPage(page.items, nextOf(walk.State, &end), end.Scanned), nil
}

// walk is fdbpq.Browse.Walk in parts, so that other browses have their turns in between. It ends
// early if it takes long, the bridge ends, or a later part fails. The next walk begins there, and
// returns the error if it persists.
func (i *Inspector) walk(
	ctx context.Context, q fdbpq.Target, all *fdbpq.Browse, visit func(*fdbpq.Browsed) bool,
) (end fdbpq.BrowseEnd, err error) {
	deadline, _ := ctx.Deadline()
	early, cancel := context.WithTimeout(ctx, min(pageTime, time.Until(deadline)/2))
	defer cancel()

	part, stopped := *all, false
	visited := func(item *fdbpq.Browsed) bool {
		stopped = !visit(item)
		return !stopped
	}

	for {
		part.MaxItems = min(partItems, all.MaxItems-int(end.Scanned))
		part.MaxBytes = min(partBytes, all.MaxBytes-end.Bytes)
		looked := fdbpq.BrowseEnd{Last: end.Last, LastTime: end.LastTime, More: true}
		err = i.paced(ctx, func() error {
			looked, err = part.Walk(ctx, i.config.DB, q, i.config.Now(), visited)
			return err
		})

		end.Last, end.LastTime, end.More = looked.Last, looked.LastTime, looked.More
		end.Bytes += looked.Bytes
		if end.Scanned += looked.Scanned; err != nil && end.Scanned == 0 {
			return end, err
		}

		enough := int(end.Scanned) >= all.MaxItems || end.Bytes >= all.MaxBytes
		if err != nil || stopped || !end.More || enough || i.ending.Err() != nil {
			return end, nil
		}

		part.After, part.AfterTime, ctx = &end.Last, end.LastTime, early
	}
}

// paced runs a part of a browse when it has its turn. While there are other requests, browses take
// a tenth of the time.
func (i *Inspector) paced(ctx context.Context, part func() error) error {
	return i.run(ctx, i.browse, func() error {
		rest := time.NewTimer(time.Until(i.nextPart))
		defer rest.Stop()
		select {
		case <-rest.C:
		case <-i.ending.Done():
		case <-ctx.Done():
			return ctx.Err()
		}

		// If other requests run or wait, the next part rests for as long as RestFactor says.
		batches, began := i.Batches.Load(), time.Now()
		err := part()
		i.nextPart = time.Now()
		if pending, _ := i.config.Dispatcher.Pending(); pending > 0 || i.Batches.Load() != batches {
			i.nextPart = i.nextPart.Add(min(RestFactor*i.nextPart.Sub(began), maxRest))
		}
		return err
	})
}

// swept sweeps a queue and returns it. It does not wait for long, because a store that cannot be
// written can still be browsed.
func (i *Inspector) swept(
	ctx context.Context, kind subjects.Kind, name string,
) (fdbpq.Target, error) {
	q, err := dispatch.TargetOf(i.config.Keyspace, kind, name)
	if err != nil {
		return nil, err
	}

	readDue := func(r kv.Reader) (due []fdbpq.QueueName, err error) {
		_, due, err = fdbpq.ReadDue(r, []fdbpq.Op{{Kind: fdbpq.OpLen, Queue: q}}, i.config.Now())
		return due, err
	}

	return q, i.run(ctx, i.browse, func() error {
		due, err := kv.ReadTransact(ctx, i.config.DB, readDue)
		if err == nil && len(due) > 0 {
			early, cancel := context.WithTimeout(ctx, min(pageTime, i.config.RequestTimeout/4))
			defer cancel()
			// If this fails, the items come as they are stored.
			_ = i.config.Dispatcher.Sweeper().Sweep(early, due)
		}
		return err
	})
}

// matches reports whether an item is wanted. An item that cannot be read has only an id.
func (e *encoder) matches(item *fdbpq.Browsed, wanted *subjects.ItemsOptions) bool {
	if wanted.Match == "" && len(wanted.Headers) == 0 {
		return true
	}

	e.stored(&item.Item)
	for name, value := range wanted.Headers {
		if !slices.Contains(e.header[name], value) {
			return false
		}
	}

	text := wanted.Match
	inResult := item.Finished != nil && bytes.Contains(item.Finished.Result, []byte(text))
	return inResult || bytes.Contains(item.Value, []byte(text)) ||
		strings.Contains(item.Holder, text) || strings.Contains(item.Job().String(), text) ||
		strings.Contains(item.ID.String(), text) || e.headersContain(text)
}

// headersContain reports whether one of the lines "name: value" that were set contains the text.
func (e *encoder) headersContain(text string) bool {
	for name, values := range e.header {
		for _, value := range values {
			if strings.Contains(name+": "+value, text) {
				return true
			}
		}
	}
	return false
}

// itemPage collects items for a reply.
type itemPage struct {
	valueBytes int  // of each value
	attempts   bool // of each item as well
	room       int  // bytes that are left
	items      [][]byte
	e          encoder
}

// newPage returns an empty page for a reply, with up to that many bytes of each value.
func (i *Inspector) newPage(valueBytes int, attempts bool) *itemPage {
	room := min(int(i.config.MaxPayload()), maxPage) - subjects.ItemsPageSize
	return &itemPage{valueBytes: max(valueBytes, 0), attempts: attempts, room: room}
}

// add adds an item unless that leaves less than others bytes of room. An item that does not fit
// alone is cut.
func (p *itemPage) add(item *fdbpq.Browsed, others int) bool {
	var stored *subjects.StoredItem
	if item.Err != nil {
		stored = failedItem(&item.ID, fdbpq.Moved(&item.ID), item.Err)
	} else {
		stored = p.render(item)
	}

	text := stored.Encode()
	if len(text) >= p.room-others {
		if len(p.items)+others > 0 {
			return false
		}
		text = p.cut(stored)
	}

	p.append(text)
	return true
}

func (p *itemPage) append(text []byte) {
	p.items = append(p.items, text)
	p.room -= len(text) + len(",")
}

// failedItem says why there is no item with an id, or at a place.
func failedItem(id *fdbpq.ID, isPlace bool, err error) *subjects.StoredItem {
	failed := &subjects.StoredItem{
		ID: id.String(), Priority: id.Priority, Value: []byte{}, Failure: itemFailure(err),
	}
	if isPlace {
		failed.ID, failed.Place = "", failed.ID
	}
	return failed
}

// render returns the item as it is sent if there is room. It shares memory with the item and p.
func (p *itemPage) render(item *fdbpq.Browsed) *subjects.StoredItem {
	p.e.stored(&item.Item)
	job, place := item.Job(), &item.ID
	stored := &subjects.StoredItem{
		ID: job.String(), Priority: place.Priority, State: subjects.State(item.State.String()),
		PushedAt: timeOrNil(item.PushedAt), Due: timeOrNil(item.Due),
		Expires: timeOrNil(item.Expires), LeasedAt: timeOrNil(item.LeasedSince),
		Holder: item.Holder, Progress: item.Progress,
		Deliveries: item.Deliveries, Reason: item.Reason,
		Size: len(item.Value), Headers: p.e.header, Value: []byte{},
	}

	if job != *place {
		stored.Place = place.String()
	}
	if dead := item.DeadLetter; dead != nil {
		stored.Reason = cmp.Or(item.Reason, dead.Error, dead.Reason)
	}

	if n := min(len(item.Value), p.valueBytes); n > 0 {
		stored.Value = item.Value[:n]
	}

	stored.ValueCut = len(stored.Value) < stored.Size
	if p.attempts {
		stored.Attempts = item.Attempts()
		stored.Successors, stored.MoreSuccessors = item.Successors()
	}
	if item.Finished != nil {
		stored.Done = p.done(item.Finished)
	}
	return stored
}

// done renders what there is of a job that is done besides.
func (p *itemPage) done(f *fdbpq.Finished) *subjects.Done {
	d := &subjects.Done{
		FinishedAt: f.At.UTC(), KeptUntil: f.Until.UTC(), ContentType: f.ContentType,
		ValueDropped: f.NoValue,
	}
	if size := len(f.Result); f.Result != nil {
		d.ResultSize = &size
		d.Result = f.Result[:min(size, p.valueBytes)]
		d.ResultCut = len(d.Result) < size
	}
	return d
}

// cut returns an item that does not fit: without headers, result and attempts, with as much of its
// value as fits, and without a reason that leaves no room at all.
func (p *itemPage) cut(stored *subjects.StoredItem) []byte {
	value := stored.Value
	stored.Headers, stored.HeadersCut = nil, len(stored.Headers) > 0
	stored.MoreSuccessors += len(stored.Successors)
	stored.Attempts, stored.Successors = nil, nil
	stored.Value, stored.ValueCut = value[:0], true
	if d := stored.Done; d != nil {
		d.Result, d.ResultCut = nil, d.ResultCut || len(d.Result) > 0
	}
	if len(stored.Encode()) >= p.room {
		stored.Reason, stored.Progress = "", nil
	}

	room := p.room - len(stored.Encode()) - len(",")

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

// nextOf returns the next of a page, nil for the last one. setAfter reads it.
func nextOf(state fdbpq.ItemState, end *fdbpq.BrowseEnd) *string {
	if !end.More {
		return nil
	}
	next := end.Last.String()
	if state == fdbpq.Done {
		next = strconv.FormatInt(end.LastTime.UnixMicro(), 10) + afterTime + next
	}
	return &next
}

// afterTime is between the two parts of the next of a page of jobs that are done.
const afterTime = "."

// setAfter has a walk begin after the next of a page.
func setAfter(walk *fdbpq.Browse, next string) error {
	if next == "" {
		return nil
	}

	if walk.State == fdbpq.Done {
		var micros string
		micros, next, _ = strings.Cut(next, afterTime)
		at, err := strconv.ParseInt(micros, 10, 64)
		if err != nil {
			return badRequest("%.100q: want what a page of finished jobs has as next", micros)
		}
		walk.AfterTime = time.UnixMicro(at)
	}

	after, err := fdbpq.ParseID(next)
	walk.After = &after
	return err
}
