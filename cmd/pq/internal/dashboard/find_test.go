package dashboard

import (
	"net/url"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// The field on each page leads to a job by its id, in a queue of either kind, among the dead
// letters, or finished.
func TestFindJob(t *testing.T) {
	r := newRig(t, func(o *Options) { o.HideValues = true })
	ready := r.push("a secret")[0]
	ctx, queues := t.Context(), client.New(r.Conn, client.WithTimeout(testenv.Patience))
	mail, err := queues.FIFOQueue("mail").Push(ctx, 0, []byte("b"))
	must(t, err)
	other := queues.PriorityQueue("other")
	dead, err := other.Push(ctx, 0, []byte("c"))
	must(t, err)
	d, err := other.Lease(ctx)
	must(t, err)
	must(t, d.Term(ctx, "no ink"))
	kept, err := other.Push(ctx, 0, []byte("d"), client.Keep(time.Hour))
	must(t, err)
	d, err = other.Lease(ctx)
	must(t, err)
	must(t, d.Ack(ctx))

	b := r.browser()
	b.get("/bridges").wants(t, 200, `action="/find"`)
	for id, path := range map[string]string{
		ready: "/queue/pq/jobs/item/", mail.ID: "/queue/q/mail/item/",
		dead.ID: "/queue/pq/other-dead/item/", kept.ID: "/queue/pq/other/item/",
	} {
		found := b.get("/find?job=+"+url.QueryEscape(id)+"+").wants(t, 303)
		if at := found.Header.Get("Location"); at != path+id {
			t.Errorf("%s leads to %s, want it below %s", id, at, path)
		}
		b.get(path+id).wants(t, 200, id).lacks(t, "secret")
	}

	_, err = r.jobs.RemoveItems(ctx, []string{ready})
	must(t, err)
	// The page would search again if it asked for itself.
	b.get("/find?job="+ready).wants(t, 404, "No job with this id is in any of ", " queues.",
		`value="`+ready+`"`).lacks(t, "data-refresh")
	b.get("/find?job=<none>").wants(t, 400, "This is not the id of a job", "&lt;none&gt;")
}

// Searches by id count as searches, of which only so many run.
func TestFindIsBounded(t *testing.T) {
	r := newRig(t, nil)
	id := r.push("a")[0]
	b, s := r.browser(), r.board.searches
	b.get("/find?job="+id).wants(t, 303)
	busy := func(look func() error) error { return look() }
	for range maxSearches {
		next := busy
		busy = func(look func() error) error {
			return s.during(func() error { return next(look) })
		}
	}

	must(t, busy(func() error {
		b.get("/find?job="+id).wants(t, 503, "too many searches are running")
		b.get("/queue/pq/jobs/items?state=done&slowest=1").wants(t, 400,
			"too many searches are running")
		return nil
	}))

	b.get("/find?job="+id).wants(t, 303)
}

// A job is looked for in the queues that the NATS user may read. Without a bridge, nobody knows
// that it is nowhere.
func TestFindAsTheUserMay(t *testing.T) {
	r := newRigAs(t, "*.list", "*.*.info", "pq.other.get", "$SRV.>", "$SYS.REQ.USER.INFO")
	id := r.push("a")[0]
	queues := client.New(r.Conn, client.WithTimeout(testenv.Patience))
	ack, err := queues.PriorityQueue("other").Push(t.Context(), 0, nil)
	must(t, err)

	b := r.browser()
	b.get("/find?job="+ack.ID).wants(t, 303)
	b.get("/find?job="+id).wants(t, 404, "in any of 1 queue that the NATS user may read")

	// One that the server does not tell what it may do asks all the same, and is refused.
	b = newRigAs(t, "*.list", "*.*.info", "$SRV.>").browser()
	b.get("/find?job="+id).wants(t, 404, "in any of 0 queues.")

	r = newRigAs(t, "*.list", "*.*.info", "$SRV.>")
	id = r.push("a")[0]
	r.browser().get("/find?job="+id).wants(t, 403, "not all queues could be asked: ",
		"may not send requests to pq.jobs.get")

	r.NATS.Stop()
	testenv.Eventually(t, func() error {
		if r.board.Conn.IsConnected() {
			return errAway
		}
		return nil
	})
	r.browser().get("/find?job="+id).wants(t, 503, "not all queues could be asked: ")
}
