package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

const tickPath = "/schedule?kind=pq&queue=jobs&id=tick"

// setTick sets the schedule tick, each hour unless change says otherwise.
func (r *rig) setTick(change func(*client.Schedule)) {
	r.t.Helper()
	s := client.Schedule{ID: "tick", Every: client.Interval(time.Hour)}

	if change != nil {
		change(&s)
	}

	_, err := r.jobs.SetSchedule(context.Background(), s)
	must(r.t, err)
}

// tick returns the schedule tick, nil if there is none.
func (r *rig) tick() *client.ScheduleRecord {
	r.t.Helper()
	list, err := r.jobs.Schedules(context.Background())
	must(r.t, err)

	for _, record := range list {
		if record.ID == "tick" {
			return record
		}
	}

	return nil
}

// A schedule that somebody has removed since the form was opened stays removed.
func TestRemovedScheduleStaysRemoved(t *testing.T) {
	r := newRig(t, nil)
	r.setTick(nil)
	b := r.browser()
	form := b.get(tickPath).editedSchedule("every", "2h")
	must(t, r.jobs.Unschedule(context.Background(), "tick"))

	refused := b.post("/schedule", form...)
	again := b.post("/schedule", refused.editedSchedule()...)

	refused.wants(t, http.StatusConflict, "somebody has removed this schedule",
		`value="2h"`).lacks(t, `name="new"`)
	again.wants(t, http.StatusConflict, "somebody has removed this schedule")

	if now := r.tick(); now != nil {
		t.Errorf("it is there again: %+v", now)
	}
}

// A value that is no text, or is hidden, is not in the form, and stays when a schedule is edited.
// If the schedule was removed meanwhile, none without a value takes its place.
func TestScheduleKeepsWhatItDoesNotShow(t *testing.T) {
	hidden := newRig(t, func(o *Options) { o.HideValues = true })
	open := serve(t, hidden.Env, hidden.Env.Connect(), nil)

	for _, test := range []struct {
		*rig
		value string
		lacks []string
	}{
		{hidden, "swordfish", []string{
			"swordfish", "sesame", `name="value"`, `name="headers"`, "before.value",
			"before.headers", "before.group",
		}},
		{open, "a\xffb", []string{`name="value"`, "before.value"}},
	} {
		headers := map[string][]string{"X-Key": {"sesame"}, "Pq-Group": {"g"}}
		test.setTick(func(s *client.Schedule) { s.Value, s.Headers = []byte(test.value), headers })
		b := test.browser()
		page := b.get(tickPath).wants(t, 200)
		page.lacks(t, test.lacks...)

		b.post("/schedule", page.editedSchedule("every", "2h")...).wants(t, http.StatusSeeOther)

		if now := test.tick(); string(now.Value) != test.value || now.When() != "every 2h" ||
			fmt.Sprint(now.Headers) != fmt.Sprint(headers) {
			t.Errorf("%+v", now)
		}

		must(t, test.jobs.Unschedule(context.Background(), "tick"))
		b.post("/schedule", page.editedSchedule("every", "3h")...).wants(t, http.StatusConflict,
			"somebody has removed")

		if now := test.tick(); now != nil {
			t.Errorf("it is there again, with the value %q", now.Value)
		}
	}
}

// A form changes only the edited fields: changes by others since it was opened stay.
func TestOldFormOfSchedule(t *testing.T) {
	r := newRig(t, nil)
	r.setTick(func(s *client.Schedule) {
		s.Value, s.Headers = []byte("old"), map[string][]string{"X-A": {"1"}, "Pq-Group": {"g"}}
	})
	b := r.browser()
	page := b.get(tickPath)

	r.setTick(func(s *client.Schedule) {
		s.Every, s.Cron, s.Zone, s.Value = 0, "0 3 * * *", "Europe/Berlin", []byte("new")
		s.Headers, s.Paused = map[string][]string{"X-B": {"2"}, "Pq-Group": {"h"}}, true
	})

	b.post("/schedule", page.editedSchedule("priority", "7", "group", "k", "jitter",
		"5s")...).wants(t, http.StatusConflict, "changed this to &#34;h&#34;")
	b.post("/schedule",
		page.editedSchedule("priority", "7", "jitter", "5s")...).wants(t, http.StatusSeeOther)

	now := r.tick()
	if now.When() != "0 3 * * * Europe/Berlin" || string(now.Value) != "new" ||
		fmt.Sprint(now.Headers) != "map[Pq-Group:[h] X-B:[2]]" || !now.Paused {
		t.Errorf("what somebody else has set became %+v", now)
	}
	if now.Priority != 7 || time.Duration(now.Jitter) != 5*time.Second {
		t.Errorf("what was edited is %+v", now)
	}
}

// An edit of a field that somebody else has changed is refused, with the present value, and works
// when it is sent again.
func TestBothEditASchedule(t *testing.T) {
	r := newRig(t, nil)
	r.setTick(nil)
	b := r.browser()
	form := b.get(tickPath).editedSchedule("every", "2h", "value", "mine")
	r.setTick(func(s *client.Schedule) { s.Every = client.Interval(3 * time.Hour) })

	refused := b.post("/schedule", form...).wants(t, http.StatusConflict,
		"somebody has changed this to &#34;3h0m0s&#34;", `value="2h"`, "mine")
	if now := r.tick(); now.When() != "every 3h" || len(now.Value) > 0 {
		t.Errorf("refused, and it became %+v", now)
	}

	b.post("/schedule", refused.editedSchedule()...).wants(t, http.StatusSeeOther)
	if now := r.tick(); now.When() != "every 2h" || string(now.Value) != "mine" {
		t.Errorf("sent again, and it became %+v", now)
	}
}

// Browsers send ends of lines of their own. A value that was not edited stays as it is, byte for
// byte, and one that was has them only if it had some before.
func TestEndsOfLinesOfSchedule(t *testing.T) {
	r := newRig(t, nil)
	b := r.browser()

	for _, test := range []struct{ value, typed, want string }{
		{"a\nb\n", "", "a\nb\n"},
		{"\na\n", "", "\na\n"},
		{"a\r\nb", "", "a\r\nb"},
		{"a\rb\r\nc\n", "", "a\rb\r\nc\n"},
		{"a\nb", "a\r\nb\r\nc", "a\nb\nc"},
		{"a\r\nb", "a\r\nb\r\nc", "a\r\nb\r\nc"},
	} {
		r.setTick(func(s *client.Schedule) {
			s.Value = []byte(test.value)
			s.Headers = map[string][]string{"X-B": {"2"}, "X-A": {"1", "0"}, "X-C": {" c "}}
		})

		typed := []string{"every", "2h"}
		if test.typed != "" {
			typed = append(typed, "value", test.typed)
		}

		b.post("/schedule",
			b.get(tickPath).editedSchedule(typed...)...).wants(t, http.StatusSeeOther)

		now := r.tick()
		if string(now.Value) != test.want ||
			fmt.Sprint(now.Headers) != "map[X-A:[1 0] X-B:[2] X-C:[ c ]]" ||
			now.When() != "every 2h" {
			t.Errorf("%q became %q, %v", test.value, now.Value, now.Headers)
		}
	}
}

// A form without the former values overwrites nothing.
func TestFormOfScheduleWithoutBefore(t *testing.T) {
	r := newRig(t, nil)
	r.setTick(nil)

	r.browser().post(
		"/schedule", "action", "set", "kind", "pq", "queue", "jobs", "id", "tick", "every", "2h",
	).wants(t, http.StatusConflict, "somebody has changed this to &#34;1h0m0s&#34;")

	if now := r.tick(); now.When() != "every 1h" {
		t.Errorf("it became %+v", now)
	}
}

// The form keeps its contents while NATS is away, and can be saved later.
func TestScheduleWhileAway(t *testing.T) {
	r := newRig(t, nil)
	r.setTick(func(s *client.Schedule) { s.Value = []byte("a\xffb") })
	b := r.browser()
	form := b.get(tickPath).editedSchedule("every", "2h")
	r.NATS.Stop()
	b.sees("/", `class="away"`)

	failed := b.post("/schedule", form...).wants(t, http.StatusServiceUnavailable,
		"nothing was changed", `value="2h"`)
	r.NATS.Start()
	testenv.Eventually(t, func() error { // the bridge is back, too
		_, err := r.jobs.Info(context.Background())
		return err
	})

	b.sees("/", `class="connected"`)

	b.post("/schedule", failed.editedSchedule()...).wants(t, http.StatusSeeOther)
	if now := r.tick(); now.When() != "every 2h" || string(now.Value) != "a\xffb" {
		t.Errorf("it became %+v", now)
	}
}

// Durations in forms may have days. What the bridges get has none, and a text that only looks like
// a duration stays.
func TestDaysInForms(t *testing.T) {
	r := newRig(t, nil)
	b := r.browser()
	const day = 24 * time.Hour
	b.post("/schedule", "action", "set", "new", "1", "kind", "pq", "queue", "jobs", "id", "tick",
		"every", "7d", "jitter", "0.02d", "value", "2d").wants(t, http.StatusSeeOther)
	if s := r.tick(); time.Duration(s.Every) != 7*day || time.Duration(s.Jitter) != day/50 ||
		string(s.Value) != "2d" {
		t.Errorf("the schedule is %+v", s)
	}

	b.post("/queue/pq/jobs/push", "value", "3d", "delay", "1d", "ttl", "2d", "keep", "9d",
		"group", "7d").wants(t, 200, "pushed ")
	page, err := r.jobs.Items(t.Context(), client.ItemsOptions{State: client.Delayed})
	must(t, err)
	it := page.Items[0]
	if group := it.Headers["Pq-Group"]; time.Until(*it.Due) < day-time.Hour ||
		time.Until(*it.Expires) < 2*day-time.Hour || group[0] != "7d" || string(it.Value) != "3d" {
		t.Errorf("pushed is %+v", it)
	}

	b.save("ttl", "10d", "backoff", "1d,2d").wants(t, 200, "changed")
	b.post("/queue/pq/jobs/pause", "for", "3d").wants(t, 200)
	if set := r.info().Settings; time.Until(set.PauseUntil) < 3*day-time.Hour ||
		set.TTL != 10*day || set.Backoff[1] != 2*day {
		t.Errorf("the settings are %+v", set)
	}
	b.post("/queue/pq/jobs/push", "value", "x", "delay", "1dd").wants(t, 400, "1dd")
}
