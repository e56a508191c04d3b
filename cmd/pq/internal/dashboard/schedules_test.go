package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// A schedule is added, listed with those of all queues, edited, run, paused, resumed and removed.
func TestSchedules(t *testing.T) {
	r := newRig(t, nil)
	b := r.browser()
	ctx := context.Background()
	form := []string{"action", "set", "kind", "pq", "queue", "jobs", "id", "nightly"}
	set := func(fields ...string) answer {
		return b.post("/schedule", append(form[:len(form):len(form)], fields...)...)
	}
	record := func() *client.ScheduleRecord {
		t.Helper()
		list, err := r.jobs.Schedules(ctx)
		must(t, err)
		if len(list) == 0 {
			return &client.ScheduleRecord{}
		}
		return list[0]
	}

	set("new", "1", "cron", "0 3 * * *", "zone", "Europe/Berlin", "value", "a\r\nreport", "headers", "X-Tenant: acme",
		"group", "g", "priority", "-7", "jitter", "5s", "until", "2100-01-02T15:04:05Z", "overlap", "skip").wants(t, http.StatusSeeOther)
	first := *record()
	if first.When() != "0 3 * * * Europe/Berlin" || string(first.Value) != "a\nreport" || first.Priority != -7 || time.Duration(first.Jitter) != 5*time.Second ||
		first.Until.Year() != 2100 || first.Overlap != "skip" || fmt.Sprint(first.Headers) != "map[Pq-Group:[g] X-Tenant:[acme]]" {
		t.Errorf("%+v", first)
	}
	_, err := client.New(r.Conn, client.WithTimeout(testenv.Patience)).Queue("mail").SetSchedule(ctx, client.Schedule{ID: "<often", Every: client.Interval(time.Hour)})
	must(t, err)
	b.sees("/schedules", "nightly", "jobs", "0 3 * * * Europe/Berlin", "&lt;often", "every 1h", "mail")
	_, err = r.jobs.Configure(ctx, client.Settings{PauseUntil: time.Now().Add(time.Hour)})
	must(t, err)
	b.sees("/schedules", "queue paused", "data-local")
	_, err = r.jobs.Configure(ctx, client.Settings{}, "pause_until")
	must(t, err)
	now := time.Now()
	rows := []scheduleRow{{}, {ScheduleRecord: &client.ScheduleRecord{}}, {}}
	rows[0].ScheduleRecord, rows[2].ScheduleRecord = &client.ScheduleRecord{Next: now.Add(1)}, &client.ScheduleRecord{Next: now}
	if slices.SortFunc(rows, byNext); !rows[0].Next.Equal(now) || !rows[2].Next.IsZero() {
		t.Errorf("the order is %v, %v, %v", rows[0].Next, rows[1].Next, rows[2].Next)
	}
	b.get("/schedule?kind=pq&queue=jobs&id=nightly").wants(t, 200, `/ <a href="/queue/pq/jobs">jobs</a>`, `value="0 3 * * *"`, `value="Europe/Berlin"`, "a\nreport", "X-Tenant: acme", `value="g"`, `value="-7"`, "0 pushed")

	for fields, says := range map[string]string{ // the first of two with a name counts
		"cron=0 3 * *": "0 3 * *", "every=1ms": "1s to ten years", "every=soon": "want a duration", "cron=@daily&every=15m": "not both",
		"cron=@daily&zone=Mars/Phobos": "Mars/Phobos", "cron=@daily&priority=x": `value="x"`, "cron=@daily&jitter=2h": "0s to 1h",
		"cron=@daily&until=soon": "want a time", "cron=@daily&headers=no+colon": "no colon", "cron=@daily&queue=a+b": "a b",
		"cron=@daily&id=a.b": "a.b", "cron=@daily&new=1": "already",
	} {
		b.do(http.MethodPost, "/schedule", fields+"&value=typed&action=set&kind=pq&queue=jobs&id=nightly").wants(t, 400, "typed", says, `class="err"`)
	}
	if now := record(); now.When() != first.When() || string(now.Value) != string(first.Value) {
		t.Errorf("%+v", now)
	}

	set("every", "15m").wants(t, http.StatusSeeOther) // without a value and headers, as for one that cannot see them
	if now := record(); now.When() != "every 15m" || string(now.Value) != "a\nreport" || len(now.Headers) != 2 || now.Overlap != "" || now.Priority != 0 {
		t.Errorf("%+v", now)
	}

	act := func(action string) {
		t.Helper()
		if to := b.post("/schedule", "action", action, "kind", "pq", "queue", "jobs", "id", "nightly", "back", "/queue/pq/jobs").wants(t, 303).Header.Get("Location"); to != "/queue/pq/jobs" {
			t.Errorf("%s leads to %s", action, to)
		}
	}
	act("run")
	if item, err := r.jobs.PopMin(ctx); err != nil || string(item.Value) != "a\nreport" || record().Fired != 1 {
		t.Errorf("%+v, %v", item, err)
	}
	act("pause")
	if !record().Paused {
		t.Error("not paused")
	}
	testenv.Eventually(t, func() error {
		if page := b.get("/queue/pq/jobs"); !strings.Contains(page.body, ">Resume<") || !strings.Contains(page.body, "paused") {
			return fmt.Errorf("not paused: %s", page.mainText())
		}
		return nil
	})
	act("resume")
	if record().Paused {
		t.Error("still paused")
	}
	act("remove")
	if id := record().ID; id != "" {
		t.Errorf("%s is still there", id)
	}
	b.post("/schedule", "action", "run", "kind", "pq", "queue", "jobs", "id", "nightly").wants(t, 404)
	b.post("/schedule", "action", "dance", "kind", "pq", "queue", "jobs", "id", "nightly").wants(t, 400, "no action")
	b.get("/schedule?kind=pq&queue=jobs&id=nightly").wants(t, 404, "no such schedule")
	b.get("/schedule").wants(t, 200, `name="new"`)
	if log := r.log.String(); !strings.Contains(log, `action="run schedule" queue=pq.jobs`) || !strings.Contains(log, "schedule=nightly") {
		t.Errorf("logged %s", log)
	}
}

// A value that is no text, or is hidden, stays when a schedule is edited.
func TestScheduleKeepsWhatItDoesNotShow(t *testing.T) {
	r := newRig(t, func(o *Options) { o.HideValues = true })
	b := r.browser()
	secret := client.Schedule{ID: "tick", Every: client.Interval(time.Hour), Value: []byte("swordfish"), Headers: map[string][]string{"X-Key": {"sesame"}}}
	_, err := r.jobs.SetSchedule(context.Background(), secret)
	must(t, err)
	b.get("/schedule?kind=pq&queue=jobs&id=tick").wants(t, 200, "hidden").lacks(t, "swordfish", "sesame", `name="value"`, `name="headers"`)

	r = serve(t, r.Env, r.Env.Connect(), nil)
	secret.Value = []byte("a\xffb")
	_, err = r.jobs.SetSchedule(context.Background(), secret)
	must(t, err)
	b = r.browser()
	b.get("/schedule?kind=pq&queue=jobs&id=tick").wants(t, 200, "no text", "sesame").lacks(t, `name="value"`)
	b.post("/schedule", "action", "set", "kind", "pq", "queue", "jobs", "id", "tick", "every", "2h").wants(t, 303)
	list, err := r.jobs.Schedules(context.Background())
	must(t, err)
	if string(list[0].Value) != "a\xffb" || list[0].When() != "every 2h" {
		t.Errorf("%+v", list[0])
	}
}
