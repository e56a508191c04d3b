package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	notAnID = "This is not the id of a job. Copy one that pq push, a client or a page has shown."
	// nowhere says of all queues that they have no job with an id.
	nowhere = "No job with this id is in any of %s%s. The id may be misspelt. Or the job was " +
		"popped or removed, has expired, or is done and was not kept, or is not kept any more."
)

// getJob leads to the page of a job by its id, whichever queue it is in.
func (b *Dashboard) getJob(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimSpace(r.URL.Query().Get("job"))
	var at *target.Place
	var missing string
	err := b.searches.during(func() (err error) {
		at, missing, err = b.findAnywhere(r.Context(), id)
		return err
	})

	code := codeOf(err)
	switch {
	case at != nil:
		http.Redirect(w, r, refTo(at.FIFO, at.Queue).Item(id), http.StatusSeeOther)
		return
	case err == nil:
		code = http.StatusNotFound
	case errors.Is(err, errSearches):
		code, missing = http.StatusServiceUnavailable, err.Error()
	case errors.Is(err, client.ErrBadRequest):
		missing = notAnID
	default:
		missing = "Not found, but not all queues could be asked: " + err.Error()
	}

	s := b.newShell(r, "Not found", "")
	s.Job, s.Refresh = id, 0 // it would search again every two seconds
	b.show(w, code, "error", s, missing)
}

// findAnywhere looks for a job in all queues that the user may read, and their dead letters. It
// returns nil if none has it, and says so in words.
func (b *Dashboard) findAnywhere(
	ctx context.Context, id string,
) (at *target.Place, missing string, err error) {
	list, err := b.monitor.freshList(ctx)
	if err != nil {
		return nil, "", err
	}

	permissions := b.gateway.permissions(ctx)
	var queues []target.Place
	for _, row := range list.rows {
		subject, err := b.gateway.subject(row.queueRef, subjects.Get)
		if err == nil && (permissions == nil || permissions.Allows(subject)) {
			queues = append(queues, target.Place{FIFO: row.FIFO(), Queue: row.Name})
		}
	}

	// Only one reply has an item, so these need not wait for room for large ones.
	get := func(ctx context.Context, at target.Place) ([]client.StoredItem, error) {
		return askIn(ctx, b.gateway, b.gateway.slots, refTo(at.FIFO, at.Queue), subjects.Get,
			func(q *client.Queue, ctx context.Context) ([]client.StoredItem, error) {
				return q.GetItems(ctx, []string{id}, client.NoValues)
			})
	}

	at, err = target.Find(ctx, queues, get)
	if at == nil && err == nil {
		err = list.err
	}
	may := ""
	if len(queues) < len(list.rows) {
		may = " that the NATS user may read"
	}
	return at, fmt.Sprintf(nowhere, terminal.Plural(len(queues), "queue"), may), err
}
