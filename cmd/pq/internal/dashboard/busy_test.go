package dashboard

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// Leased items are listed with their holders, the earliest on top, and released from there.
func TestBusy(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	b := r.browser()
	b.sees("/busy", "Nothing is leased")
	mail := client.New(r.Conn, client.WithTimeout(testenv.Patience)).FIFOQueue("mail")
	_, err := mail.Push(ctx, 0, []byte("dear all"))
	must(t, err)

	r.push("secret", "later", "ready")

	held, err := r.jobs.Lease(ctx, client.Holder("host-<1>/worker"), client.AckWait(time.Hour))
	must(t, err)
	_, err = held.Progress(ctx, []byte("<40 %>"))
	must(t, err)
	_, err = mail.Lease(ctx, client.AckWait(time.Hour))
	must(t, err)

	_, err = r.jobs.Lease(ctx, client.AckWait(time.Hour))
	must(t, err)

	var page string
	testenv.Eventually(t, func() error {
		r.board.busy.expire()
		page = b.get("/busy").body

		if strings.Count(page, ">Release…<") != 3 {
			return fmt.Errorf("not three items: %s", page)
		}

		return nil
	})

	for _, want := range []string{
		"3 items", "host-&lt;1&gt;/worker", "<bdi>" + none, "/queue/q/mail/release",
		"&lt;40 %&gt;",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%s is missing in %s", want, page)
		}
	}

	first, second := strings.Index(page, held.ID), strings.Index(page, "/queue/q/mail")
	if first < 0 || second < first {
		t.Errorf("what was leased first is not on top: %s", page)
	}
	b.get("/queue/pq/jobs/item/"+held.ID).wants(t, 200, "Held by", "host-&lt;1&gt;/worker",
		"since ")

	b.post("/queue/pq/jobs/release", "ids", held.ID, "dry", "1", "back", "/busy").wants(t, 200,
		"Release 1 item", `value="/busy"`, "held by host-&lt;1&gt;/worker")
	b.post("/queue/pq/jobs/release", "ids", held.ID, "back", "/busy").wants(t, 200,
		"1 item released", `href="/busy"`)

	b.sees("/busy", "2 items").lacks(t, held.ID)
}

// Of many leased items, the earliest leased are kept, whatever their order in the queue.
func TestBusyKeepsTheOldest(t *testing.T) {
	t.Parallel()

	start := time.Now()
	var v busyView

	for page := range 5 {
		items := make([]client.StoredItem, 300)
		for i := range items {
			at := start.Add(time.Duration((page*300+i)*7%1500) * time.Second)
			items[i] = client.StoredItem{ID: fmt.Sprint(page, "-", i), LeasedAt: &at}
		}

		v.add(queueRef{"pq", "jobs"}, items)
	}
	if v.Counted != 1500 || len(v.Rows) != pageRows || !v.Rows[0].LeasedAt.Equal(start) ||
		!v.Rows[99].LeasedAt.Equal(start.Add(99*time.Second)) {
		t.Errorf("%d of %d, from %v to %v", len(v.Rows), v.Counted, v.Rows[0].LeasedAt,
			v.Rows[len(v.Rows)-1].LeasedAt)
	}
}
