package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// rowBytes are shown of the values in a table, itemBytes on the page of an item.
const (
	rowBytes  = 160
	itemBytes = subjects.MaxValueBytes
)

// valueBytes is how many bytes of each value to ask for to show n of them.
func (b *Dashboard) valueBytes(n int) int {
	if b.HideValues {
		return client.NoValues
	}
	return n
}

// rowsOf returns items as the pages show them. Only the page of an item shows headers, which can
// have a megabyte.
func (b *Dashboard) rowsOf(q queueRef, items []client.StoredItem, headers bool) []itemRow {
	rows := make([]itemRow, len(items))
	for i, item := range items {
		rows[i] = itemRow{Queue: q, StoredItem: item}
		rows[i].ID = shorten(cmp.Or(item.ID, item.Place)) // what answers may not be a bridge
		rows[i].Place = shorten(item.Place)
		if info, err := subjects.ParseItemHeaders(item.Headers); err == nil {
			rows[i].Dead = info.DeadLetter
		}
		rows[i].Parent = item.Parent()
		if b.HideValues {
			rows[i].Value, rows[i].Progress = nil, nil
			if rows[i].Done != nil {
				rows[i].Result = nil
			}
		} else {
			rows[i].Type = settings.Cut(cmp.Or(item.Headers[client.HeaderType]...), rowBytes)
		}
		if b.HideValues || !headers {
			rows[i].Headers = nil
		}
		rows[i].cutHeaders()
	}

	return rows
}

// cutHeaders leaves out headers beyond as many bytes as are shown of a value.
func (r *itemRow) cutHeaders() {
	room := itemBytes
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		values := r.Headers[name]
		room -= len(name)*len(values) + len(strings.Join(values, ""))
		if room < 0 {
			delete(r.Headers, name)
			r.HeadersCut = true
		}
	}
}

// rowsByID returns items by their ids or target.Ref. Missing ones have a Code.
func (b *Dashboard) rowsByID(
	ctx context.Context, q queueRef, refs []string, bytes int,
) ([]itemRow, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	items, err := b.itemsByID(ctx, q, target.Named(refs, false), b.valueBytes(bytes))
	return b.rowsOf(q, items, bytes == itemBytes), err
}

func (b *Dashboard) itemsByID(
	ctx context.Context, q queueRef, ids []string, bytes int,
) ([]client.StoredItem, error) {
	return ask(ctx, b.gateway, q, subjects.Get,
		func(q *client.Queue, ctx context.Context) ([]client.StoredItem, error) {
			return q.GetItems(ctx, ids, bytes)
		})
}

// notThere says of a queue that it has no job with an id.
const notThere = "No job with this id is in %s or its dead letters: it was done and not kept " +
	"(setting keep), popped or removed, has expired, or belongs to another queue."

func (b *Dashboard) getItem(w http.ResponseWriter, r *http.Request, q queueRef) {
	v := &itemView{As: r.URL.Query().Get("as"), Search: r.URL.Query().Get("search")}
	v.Queue, v.ID = q, r.PathValue("id")
	code := http.StatusOK
	rows, err := b.findJob(r.Context(), q, v.ID)
	switch {
	case errors.Is(err, client.ErrBadRequest):
		v.Gone, code = notAnID, codeOf(err)
	case err != nil:
		v.Gone, code = err.Error(), codeOf(err)
	case len(rows) != 1:
		v.Gone, code = client.ErrBadReply.Error(), http.StatusBadGateway
	case isGone(rows[0]):
		v.Gone, code = fmt.Sprintf(notThere, q.Name), http.StatusNotFound
	case rows[0].Code != 0:
		v.Gone, code = rows[0].Text, int(rows[0].Code)
	default:
		v.itemRow, v.Can = rows[0], b.gateway.may(r.Context(), rows[0].Queue)
		v.Chain = b.chainOf(r.Context(), q, &v.itemRow)
		delete(v.Headers, subjects.HeaderParent)
		if v.Dead == nil && v.State == subjects.StateReady {
			v.Rank = b.rank(r.Context(), &rows[0])
		}
		if v.Dead != nil { // the page has these beside the value
			maps.DeleteFunc(v.Headers, func(name string, _ []string) bool {
				return strings.HasPrefix(name, deadPrefix)
			})
		}
	}

	b.show(w, code, "item", b.newShell(r, v.Queue.Name, navOf(v.Queue)), v)
}

// findJob returns the item of a job, or else the dead letter that it has become.
func (b *Dashboard) findJob(ctx context.Context, q queueRef, id string) ([]itemRow, error) {
	in, items, err := b.readJob(ctx, q, id, b.valueBytes(itemBytes))
	return b.rowsOf(in, items, true), err
}

// readJob returns the item of a job, or else the dead letter that it has become, and its queue.
func (b *Dashboard) readJob(
	ctx context.Context, q queueRef, id string, bytes int,
) (in queueRef, items []client.StoredItem, err error) {
	items, err = b.itemsByID(ctx, q, []string{id}, bytes)
	if err != nil || len(items) != 1 || items[0].Code != subjects.CodeNotFound {
		return q, items, err
	}

	info, err := b.monitor.ask(ctx, q)
	if err != nil {
		return q, items, nil
	}
	dead := q.Named(info.Settings.DeadLetterQueue(q.Name))
	letters, err := b.itemsByID(ctx, dead, []string{id}, bytes)
	if err != nil || len(letters) != 1 {
		return q, items, nil
	}
	if letter := target.DeadLetter(&letters[0]); letter != nil && letter.Queue == q.Name {
		return dead, letters, nil
	}
	return q, items, nil
}

// chainOf returns the chain of a job, nil if it is the only one that is known.
func (b *Dashboard) chainOf(ctx context.Context, q queueRef, row *itemRow) []chainRow {
	if row.Parent == nil && len(row.Successors)+row.MoreSuccessors == 0 {
		return nil
	}

	self := chainKey{q, row.ID}
	chain, _ := b.chains.get(ctx, self, func() (rows []chainRow, err error) {
		get := func(job trail.Job) (string, client.StoredItem, error) {
			in, found, err := b.readJob(ctx, q.Named(job.Queue), job.ID, client.NoValues)
			if err != nil || len(found) != 1 {
				return in.Name, client.StoredItem{}, cmp.Or(err, error(client.ErrBadReply))
			}
			return in.Name, found[0], client.ItemResult{Failure: found[0].Failure}.Err()
		}
		all, of := target.Chain(trail.Job{Queue: q.Name, ID: row.ID}, get)
		for _, k := range all {
			rows = append(rows, chainRow{
				Queue: q.Named(k.Queue), ID: shorten(k.ID), Indent: k.Depth - all[0].Depth,
				More: k.More, Standing: k.Standing(time.Now()), IsSelf: k == of, IsOpen: k.IsOpen(),
			})
		}
		return rows, of.Err
	})
	return chain
}

// chainKey is a job, and the queue that it was pushed to.
type chainKey struct {
	queueRef
	id string
}

// rank returns how many items would be served before one, nil if that is not known.
func (b *Dashboard) rank(ctx context.Context, row *itemRow) *int64 {
	count := func(q *client.Queue, ctx context.Context) (rank *int64, err error) {
		n, atLeast, err := q.Rank(ctx, row.ID)
		if err == nil && !atLeast {
			rank = &n
		}
		return rank, err
	}
	rank, _ := ask(ctx, b.gateway, row.Queue, subjects.Rank, count) // then it is not known
	return rank
}

// getValue sends the value as a file, so that no browser takes it for a page.
func (b *Dashboard) getValue(w http.ResponseWriter, r *http.Request, q queueRef) {
	if b.HideValues {
		b.fail(w, r, http.StatusForbidden, "Hidden", "Values are hidden here.")
		return
	}

	// A browser may read it slowly, and how large it is is only known once it is here.
	most := min(b.Conn.MaxPayload(), maxFiles)
	if b.files.Acquire(r.Context(), most) != nil {
		refuseForm(w, errBusy)
		return
	}
	defer b.files.Release(most)

	id := r.PathValue("id")
	item, err := ask(r.Context(), b.gateway, q, subjects.Get,
		func(q *client.Queue, ctx context.Context) (*client.Item, error) {
			item, _, err := q.Get(ctx, id)
			return item, err
		})
	if err != nil {
		b.failWith(w, r, err)
		return
	}

	b.log(r, "download", q, "id", id, "bytes", len(item.Value))
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", // ids need no escaping
		fmt.Sprintf(`attachment; filename="%s.bin"`, cmp.Or(item.ID, "item")))
	h.Set("Content-Length", strconv.Itoa(len(item.Value)))
	_, _ = w.Write(item.Value) // fails if the browser is gone
}

func isGone(row itemRow) bool { return row.Code == subjects.CodeNotFound }

// deadPrefix begins the names of the headers that say how an item became a dead letter.
const deadPrefix = "Pq-Dead-"
