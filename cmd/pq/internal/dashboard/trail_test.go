package dashboard

import (
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects/trail"
	"github.com/pqbridge/pqbridge/testenv"
)

// set changes the settings of a queue of the same kind as jobs.
func (r *rig) set(queue string, settings client.Settings) *client.Queue {
	r.t.Helper()
	q := client.New(r.Conn, client.WithTimeout(testenv.Patience)).PriorityQueue(queue)
	_, err := q.Configure(r.t.Context(), settings)
	must(r.t, err)
	return q
}

// The page of a job says how each of its attempts ended, and which job of its chain is stuck. The
// front page and the list of dead letters say what failed in the last hour, and the page of its
// queue who is slow.
func TestTrailOfAJob(t *testing.T) {
	r := newRig(t, nil)
	b := r.browser()
	r.set("jobs", client.Settings{Trail: 8, Keep: time.Hour, Next: []string{"mail"}})
	mail := r.set("mail", client.Settings{Trail: 8, MaxDeliver: 1})
	id := r.push("report")[0]

	d, err := r.jobs.Lease(t.Context(), client.Holder("bob"))
	must(t, err)
	must(t, d.Nak(t.Context(), 0, client.Reason("no <paper>")))
	d, err = r.jobs.Lease(t.Context(), client.Holder("ann"))
	must(t, err)
	must(t, d.Then("mail", 0, []byte("letter")))
	must(t, d.Ack(t.Context()))

	failed, err := mail.Lease(t.Context(), client.Holder("carl"))
	must(t, err)
	must(t, failed.Nak(t.Context(), 0, client.Reason("no such user")))

	page := b.get("/queue/pq/jobs/item/"+id).wants(t, 200, "Attempts</h2>", "bob",
		"no &lt;paper&gt;", `class="how-nak"`, `class="how-done"`, "this job</strong>",
		`href="/queue/pq/mail/item/`+failed.ID+`"`, "<strong>dead for ",
		"last failure: no such user</strong>")
	page.lacks(t, "Pushed by")
	b.get("/queue/pq/mail/item/"+failed.ID).wants(t, 200, "Pushed by",
		`href="/queue/pq/jobs/item/`+id+`"`, "no such user").lacks(t, "Pq-Parent")

	b.sees("/queue/pq/jobs", "the newest 1 finished job", "<bdi>ann</bdi>")
	b.sees("/", "Failed in the last hour", `href="/dead?recent"`)
	b.sees("/dead?recent", "no such user", "Of the last hour").lacks(t, "Redrive all")
}

// The line of time of a job has each life and each attempt, also those whose length is not known,
// and nothing beyond its ends.
func TestLineOfTime(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	v := &itemView{}
	v.Attempts = []trail.Attempt{
		{Life: 1, Number: 1, From: at(0), To: at(50), How: trail.Nak},
		{Life: 1, Number: 2, From: at(80), To: at(60), How: trail.RanOut},
		{Life: 2, Number: 1, To: at(100), How: trail.Done},
	}

	marks := v.Line()

	var classes []string
	for _, m := range marks {
		classes = append(classes, m.Class)
		if m.X < 0 || m.Width <= 0 || m.X+m.Width > 100.01 {
			t.Errorf("a mark at %v as wide as %v", m.X, m.Width)
		}
	}
	want := []string{"life", "nak", "ran out", "life", "done"}
	if !slices.Equal(classes, want) || int(marks[1].Width) != 49 || int(marks[4].X) != 99 {
		t.Errorf("%+v, want %v", marks, want)
	}
	if (&itemView{}).Line() != nil {
		t.Error("a job without attempts has a line")
	}
}
