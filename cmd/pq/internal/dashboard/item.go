package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

func (d *Dashboard) getItem(w http.ResponseWriter, r *http.Request) {
	q, ok := d.queueOf(w, r)
	if !ok {
		return
	}
	v, code := d.itemView(r, q)
	d.show(w, r, code, "item", "item", d.newShell(r, q.Name, "queues"), v)
}

func (d *Dashboard) itemView(r *http.Request, q queueRef) (v *itemView, code int) {
	id := r.PathValue("id")
	v = &itemView{itemRow: itemRow{Queue: q}, As: r.URL.Query().Get("as")}
	v.ID = id
	items, err := ask(r.Context(), d.gateway, q, subjects.Get, func(ctx context.Context, handle queue) ([]client.StoredItem, error) {
		return handle.GetItems(ctx, []string{id}, d.valueBytes(itemBytes))
	})
	switch {
	case err != nil:
		v.Gone = err.Error()
		return v, codeOf(err)
	case len(items) != 1:
		v.Gone = client.ErrBadReply.Error()
		return v, http.StatusBadGateway
	case items[0].Code != 0:
		v.Gone = items[0].Text
		return v, int(items[0].Code)
	}

	v.itemRow = d.rowOf(q, items[0])
	v.Can = d.gateway.may(r.Context(), q)
	if v.State == subjects.StateReady {
		type ranked struct {
			n       int64
			atLeast bool
		}
		rank, err := ask(r.Context(), d.gateway, q, subjects.Rank, func(ctx context.Context, handle queue) (ranked, error) {
			n, atLeast, err := handle.Rank(ctx, id)
			return ranked{n, atLeast}, err
		})
		if err == nil && !rank.atLeast {
			v.Rank = &rank.n
		}
	}
	return v, http.StatusOK
}

// getValue sends the value as a file, so that no browser takes it for a page.
func (d *Dashboard) getValue(w http.ResponseWriter, r *http.Request) {
	q, ok := d.queueOf(w, r)
	if !ok {
		return
	}
	if d.HideValues {
		d.fail(w, r, http.StatusForbidden, "Hidden", "Values are hidden here.")
		return
	}

	id := r.PathValue("id")
	item, err := ask(r.Context(), d.gateway, q, subjects.Get, func(ctx context.Context, handle queue) (*client.Item, error) {
		item, _, err := handle.Get(ctx, id)
		return item, err
	})
	if err != nil {
		d.failWith(w, r, err)
		return
	}

	d.log(r, "download", q, "id", id, "bytes", len(item.Value))
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s.bin"`, cmp.Or(item.ID, "item"))) // ids need no escaping
	h.Set("Content-Length", strconv.Itoa(len(item.Value)))
	_, _ = w.Write(item.Value) // fails if the browser is gone
}
