package dashboard

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
)

// finish pushes a job that is kept, and does it. It returns the id.
func (r *rig) finish(value, result string) string {
	r.t.Helper()
	ack, err := r.jobs.Push(r.t.Context(), 5, []byte(value), client.Keep(time.Hour))
	must(r.t, err)
	d, err := r.jobs.Lease(r.t.Context(), client.Holder("ann"))
	must(r.t, err)
	d.SetResult([]byte(result), "text/plain")
	must(r.t, d.Ack(r.t.Context()))
	return ack.ID
}

// The finished jobs of a queue are listed newest first, with what they returned and how long they
// took. They can be searched, removed, run again and purged.
func TestFinishedJobs(t *testing.T) {
	r := newRig(t, nil)
	b := r.browser()
	first, second, third := r.finish("a", "did <a>"), r.finish("b", "did b"), r.finish("c", "did c")
	const path = "/queue/pq/jobs/items?state=done"

	page := b.get(path).wants(t, 200, "Finished jobs in jobs", "did &lt;a&gt;", "ann", third,
		"The newest 3 jobs took ", "Run again…", "Finished <span>3</span>")
	page.lacks(t, "Move…", "Release…", "Dead letters in")
	b.sees("/queue/pq/jobs", path+`">Finished</a></dt><dd>3</dd>`, "that are finished")
	b.get("/queue/pq/jobs/items").wants(t, 200, "No items here")

	found := b.post("/queue/pq/jobs/search", "state", "done", "match", "did b")
	b.sees(found.Header.Get("Location"), "1 item</strong> matches", "did b").lacks(t, first, third)

	b.get("/queue/pq/jobs/item/"+first).wants(t, 200, "did &lt;a&gt;", "text/plain", "Took", "ann",
		"Kept until", "Finished")

	remove := []string{"ids", first, "state", "done"}
	b.post("/queue/pq/jobs/remove", append(remove, "dry", "1")...).wants(t, 200,
		`name="state" value="done"`, "Remove 1 finished job in jobs?")
	b.post("/queue/pq/jobs/remove", remove...).wants(t, 200, "1 finished job removed", path)
	again := []string{"ids", second, "state", "done", "back", "/queue/pq/jobs/item/" + second}
	b.get("/queue/pq/jobs/item/"+second).wants(t, 200, "Run again…",
		`name="back" value="`+again[5])
	b.post("/queue/pq/jobs/redrive", append(again, "dry", "1")...).wants(t, 200,
		"Run 1 finished job in jobs again?", "Run 1 finished job again</button>")
	b.post("/queue/pq/jobs/redrive", again...).wants(t, 200, "1 finished job will run again",
		`href="`+again[5]+`" data-close`)
	b.get("/queue/pq/jobs/item/"+second).wants(t, 200, "s-ready")
	d, err := r.jobs.Lease(t.Context())
	must(t, err)
	must(t, d.Ack(t.Context()))
	b.post("/queue/pq/jobs/redrive", again...).wants(t, 200, "no such item") // sent again
	items, err := r.jobs.GetItems(t.Context(), []string{second}, 0)
	must(t, err)
	again[1] += "@" + items[0].Place
	b.get("/queue/pq/jobs/item/"+second).wants(t, 200, `name="ids" value="`+again[1]+`"`)
	b.post("/queue/pq/jobs/redrive", again...).wants(t, 200, "1 finished job will run again")
	b.post("/queue/pq/jobs/purge", "state", "done", "dry", "1").wants(t, 200,
		"Purge 1 finished job in jobs?")
	b.post("/queue/pq/jobs/purge", "state", "done", "name", "jobs").wants(t, 200,
		"1 finished job purged")
	b.get(path).wants(t, 200, "This queue keeps no finished jobs unless a push asks for it",
		`href="/queue/pq/jobs#settings"`).lacks(t, third, "No items here")
	if i := r.info(); i.Ready != 1 {
		t.Errorf("%d items are ready, want the one that runs again", i.Ready)
	}
}

// The list of finished jobs has their types and values, and leads to the slowest of them.
func TestSlowestJobs(t *testing.T) {
	hidden := newRig(t, func(o *Options) { o.HideValues = true })
	open := serve(t, hidden.Env, hidden.Env.Connect(), nil)
	var ids []string
	for _, value := range []string{"quick <1>", "slow", "quick 2"} {
		ack, err := open.jobs.Push(t.Context(), 5, []byte(value), client.Keep(time.Hour),
			client.Type("print <"+value+">"))
		must(t, err)
		d, err := open.jobs.Lease(t.Context())
		must(t, err)
		must(t, d.Ack(t.Context()))
		ids = append(ids, ack.ID)
	}

	const path, slowest = "/queue/pq/jobs/items?state=done", "state=done&amp;slowest=1"
	b := open.browser()
	b.get(path).wants(t, 200, "Type and value", "print &lt;slow&gt;</span> slow",
		"quick &lt;1&gt;</bdi>", slowest)
	found := b.get(path+"&slowest=1").wants(t, 303)
	page := b.get(found.Header.Get("Location")).wants(t, 200, "Finished jobs in jobs",
		"the slowest first", ids[0], ids[1], ids[2], "data-pick-match> all 3")
	page.lacks(t, slowest)

	pages := target.Pages(t.Context(), client.ItemsOptions{State: client.Done}, open.jobs.Items)
	list, err := target.Slowest(pages, func(client.ItemsPage) {})
	must(t, err)
	for i := range list[1:] {
		if strings.Index(page.body, list[i].ID) > strings.Index(page.body, list[i+1].ID) {
			t.Errorf("%s is not before a job that took less time", list[i].ID)
		}
	}

	hidden.browser().get(path).wants(t, 200, slowest, ids[0]).lacks(t, "quick", "print")
}

// What is leased is not offered to be moved.
func TestLeasedIsNotMoved(t *testing.T) {
	r := newRig(t, nil)
	ids := r.push("a", "b")
	_, err := r.jobs.Lease(t.Context())
	must(t, err)

	b := r.browser()
	leased := b.get("/queue/pq/jobs/item/"+ids[0]).wants(t, 200, "Remove…")
	leased.lacks(t, "Move…", "To the front")
	leased = b.get("/queue/pq/jobs/items?state=leased").wants(t, 200, ids[0], "Release…")
	leased.lacks(t, "Move…")
	b.get("/queue/pq/jobs/item/"+ids[1]).wants(t, 200, "Move…", "To the front…")
	b.get("/queue/pq/jobs/items").wants(t, 200, "Move…")
}

// The page of a leased job shows what its worker has said last, unless values are hidden.
func TestProgressOnAPage(t *testing.T) {
	for _, hide := range []bool{false, true} {
		item := client.StoredItem{State: client.Leased, Progress: []byte("<40 %>")}
		b := Dashboard{Options: Options{HideValues: hide}}
		view := &itemView{itemRow: b.rowsOf(queueRef{}, []client.StoredItem{item}, true)[0]}

		var page bytes.Buffer
		must(t, writePage(&page, "item", &shell{HideValues: hide}, view))

		if strings.Contains(page.String(), "&lt;40 %&gt;") == hide {
			t.Errorf("with hidden values %t, the page is %s", hide, page.String())
		}
	}
}

// The page of a job that has died shows its dead letter.
func TestJobAmongTheDeadLetters(t *testing.T) {
	r := newRig(t, nil)
	id := r.push("a")[0]
	d, err := r.jobs.Lease(t.Context())
	must(t, err)
	must(t, d.Term(t.Context(), "no ink"))

	r.browser().get("/queue/pq/jobs/item/"+id).wants(t, 200, "no ink",
		`action="/queue/pq/jobs-dead/remove"`, "Redrive…")
}

// Where values are hidden, so are results.
func TestHiddenResults(t *testing.T) {
	r := newRig(t, func(o *Options) { o.HideValues = true })
	id := r.finish("a", "a secret")
	b := r.browser()
	b.get("/queue/pq/jobs/items?state=done").wants(t, 200, id, "The newest job took ").lacks(t,
		"secret")
	b.get("/queue/pq/jobs/item/"+id).wants(t, 200, "Hidden: ").lacks(t, "secret")
}
