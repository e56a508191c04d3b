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

// A schedule is added, listed among all others, edited, run, paused, resumed and removed.
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

	set("new", "1", "cron", "0 3 * * *", "zone", "Europe/Berlin", "value", "a\r\nreport", "headers",
		"X-Tenant: acme",
		"group", "g", "priority", "-7", "jitter", "5s", "until", "2100-01-02T15:04:05Z", "overlap",
		"skip").wants(t, http.StatusSeeOther)

	first := *record()
	if first.When() != "0 3 * * * Europe/Berlin" || string(first.Value) != "a\nreport" ||
		first.Priority != -7 || time.Duration(first.Jitter) != 5*time.Second ||
		first.Until.Year() != 2100 || first.Overlap != "skip" ||
		fmt.Sprint(first.Headers) != "map[Pq-Group:[g] X-Tenant:[acme]]" {
		t.Errorf("%+v", first)
	}

	mail := client.New(r.Conn, client.WithTimeout(testenv.Patience)).FIFOQueue("mail")
	often := client.Schedule{ID: "<often", Every: client.Interval(time.Hour)}
	_, err := mail.SetSchedule(ctx, often)
	must(t, err)
	b.sees("/schedules", "nightly", "jobs", "0 3 * * * Europe/Berlin", "&lt;often", "every 1h",
		"mail")
	_, err = r.jobs.Configure(ctx, client.Settings{PauseUntil: time.Now().Add(time.Hour)})
	must(t, err)

	b.sees("/schedules", "queue paused", "data-local")
	_, err = r.jobs.Configure(ctx, client.Settings{}, "pause_until")
	must(t, err)

	now := time.Now()
	rows := []scheduleRow{{}, {ScheduleRecord: &client.ScheduleRecord{}}, {}}
	rows[0].ScheduleRecord, rows[2].ScheduleRecord = &client.ScheduleRecord{
		Next: now.Add(1),
	}, &client.ScheduleRecord{Next: now}

	if slices.SortFunc(rows, byNext); !rows[0].Next.Equal(now) || !rows[2].Next.IsZero() {
		t.Errorf("the order is %v, %v, %v", rows[0].Next, rows[1].Next, rows[2].Next)
	}
	b.get("/schedule?kind=pq&queue=jobs&id=nightly").wants(
		t,
		200,
		`/ <a href="/queue/pq/jobs">jobs</a>`,
		`value="0 3 * * *"`,
		`value="Europe/Berlin"`,
		"a\nreport",
		"X-Tenant: acme",
		`value="g"`,
		`value="-7"`,
		"0 pushed",
	)

	for fields, says := range map[string]string{ // the first of two with a name counts
		"cron=0 3 * *":                 "0 3 * *",
		"every=1ms":                    "1s to ten years",
		"every=soon":                   "want a duration",
		"cron=@daily&every=15m":        "not both",
		"cron=@daily&zone=Mars/Phobos": "Mars/Phobos",
		"cron=@daily&priority=x":       `value="x"`,
		"cron=@daily&jitter=2h":        "0s to 1h",
		"cron=@daily&until=soon":       "want a time",
		"cron=@daily&headers=no+colon": "no colon",
		"cron=@daily&queue=a+b":        "a b",
		"cron=@daily&id=a.b":           "a.b",
		"cron=@daily&id=nightly":       "already",
	} {
		b.do(
			http.MethodPost,
			"/schedule",
			fields+"&value=typed&action=set&kind=pq&queue=jobs&id=other&new=1",
		).wants(t, 400, "typed", says, `class="err"`)
	}
	if now := record(); now.When() != first.When() || string(now.Value) != string(first.Value) {
		t.Errorf("%+v", now)
	}

	edit := b.get("/schedule?kind=pq&queue=jobs&id=nightly")
	b.post("/schedule", edit.editedSchedule("every", "15m", "cron", "", "zone", "", "overlap", "",
		"priority", "0", "jitter", "")...).wants(t, http.StatusSeeOther)

	if now := record(); now.When() != "every 15m" || string(now.Value) != "a\nreport" ||
		len(now.Headers) != 2 || now.Overlap != "" || now.Priority != 0 {
		t.Errorf("%+v", now)
	}

	act := func(action string) {
		t.Helper()
		to := b.post("/schedule", "action", action, "kind", "pq", "queue", "jobs", "id",
			"nightly", "back", "/queue/pq/jobs").wants(t, 303).Header.Get("Location")
		if to != "/queue/pq/jobs" {
			t.Errorf("%s leads to %s", action, to)
		}
	}

	act("run")
	item, err := r.jobs.Pop(ctx)
	if err != nil || string(item.Value) != "a\nreport" || record().Fired != 1 {
		t.Errorf("%+v, %v", item, err)
	}

	act("pause")
	if !record().Paused {
		t.Error("not paused")
	}
	testenv.Eventually(t, func() error {
		page := b.get("/queue/pq/jobs")
		if !strings.Contains(page.body, ">Resume<") || !strings.Contains(page.body, "paused") {
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
	b.post("/schedule", "action", "run", "kind", "pq", "queue", "jobs", "id",
		"nightly").wants(t, 404)
	b.post("/schedule", "action", "dance", "kind", "pq", "queue", "jobs", "id",
		"nightly").wants(t, 400, "no action")
	b.get("/schedule?kind=pq&queue=jobs&id=nightly").wants(t, 404, "no such schedule")
	b.get("/schedule").wants(t, 200, `name="new"`)

	log := r.log.String()
	if !strings.Contains(log, `action="run schedule" queue=pq.jobs`) ||
		!strings.Contains(log, "schedule=nightly") {
		t.Errorf("logged %s", log)
	}
}
