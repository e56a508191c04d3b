package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/subjects"
)

// rowBytes are shown of the values in a table, itemBytes on the page of an item.
const (
	rowBytes  = 160
	itemBytes = subjects.MaxValueBytes
)

// valueBytes is how many bytes of each value to ask for, of which n would be shown.
func (b *board) valueBytes(n int) int {
	if b.HideValues {
		return client.NoValues
	}
	return n
}

// rowsOf returns items as the pages show them.
func (b *board) rowsOf(q queueRef, items []client.StoredItem) []itemRow {
	rows := make([]itemRow, len(items))
	for i, item := range items {
		rows[i] = itemRow{Queue: q, StoredItem: item}
		rows[i].ID = shorten(item.ID) // what answers may not be a bridge
		if info, err := subjects.ParseItemHeaders(item.Headers); err == nil {
			rows[i].Dead = info.DeadLetter
		}
		if b.HideValues {
			rows[i].Value, rows[i].Headers = nil, nil
		}
	}

	return rows
}

// rowsByID returns items, also those that have a Code because they are not there.
func (b *board) rowsByID(
	ctx context.Context, q queueRef, ids []string, bytes int,
) ([]itemRow, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	get := func(q target.Queue, ctx context.Context) ([]client.StoredItem, error) {
		return q.GetItems(ctx, ids, b.valueBytes(bytes))
	}
	items, err := ask(ctx, b.gateway, q, subjects.Get, get)
	return b.rowsOf(q, items), err
}

func (b *board) getItem(w http.ResponseWriter, r *http.Request, q queueRef) {
	v := &itemView{As: r.URL.Query().Get("as"), Search: r.URL.Query().Get("search")}
	v.Queue, v.ID = q, r.PathValue("id")
	code := http.StatusOK
	rows, err := b.rowsByID(r.Context(), q, []string{v.ID}, itemBytes)
	switch {
	case err != nil:
		v.Gone, code = err.Error(), codeOf(err)
	case len(rows) != 1:
		v.Gone, code = client.ErrBadReply.Error(), http.StatusBadGateway
	case rows[0].Code != 0:
		v.Gone, code = rows[0].Text, int(rows[0].Code)
	default:
		v.itemRow, v.Can = rows[0], b.gateway.may(r.Context(), q)
		v.Rank = b.rank(r.Context(), &rows[0])
	}

	b.show(w, code, "item", b.newShell(r, q.Name, navOf(q)), v)
}

// rank returns how many items would be served before one, nil if that is not known.
func (b *board) rank(ctx context.Context, row *itemRow) *int64 {
	if row.State != subjects.StateReady {
		return nil
	}

	count := func(q target.Queue, ctx context.Context) (rank *int64, err error) {
		n, atLeast, err := q.RankItem(ctx, row.ID, false)
		if err == nil && !atLeast {
			rank = &n
		}
		return rank, err
	}

	rank, _ := ask(ctx, b.gateway, row.Queue, subjects.Rank, count) // then it is not known
	return rank
}

// getValue sends the value as a file, so that no browser takes it for a page.
func (b *board) getValue(w http.ResponseWriter, r *http.Request, q queueRef) {
	if b.HideValues {
		b.fail(w, r, http.StatusForbidden, "Hidden", "Values are hidden here.")
		return
	}

	id := r.PathValue("id")
	get := func(q target.Queue, ctx context.Context) (*client.Item, error) {
		item, _, err := q.Get(ctx, id)
		return item, err
	}

	item, err := ask(r.Context(), b.gateway, q, subjects.Get, get)
	if err != nil {
		b.failWith(w, r, err)
		return
	}

	b.log(r, "download", q, "id", id, "bytes", len(item.Value))
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	file := cmp.Or(item.ID, "item") + ".bin" // ids need no escaping
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s"`, file))
	h.Set("Content-Length", strconv.Itoa(len(item.Value)))
	_, _ = w.Write(item.Value) // fails if the browser is gone
}
