package schedule

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// Berlin sets its clock forward on 2026-03-29 at 01:00 UTC and back on 2026-10-25 at 01:00 UTC;
// Lord Howe, by half an hour, back on 2026-04-04 at 15:00 UTC and forward on 2026-10-03 at 15:30
// UTC.
func TestTimes(t *testing.T) {
	for _, c := range []struct {
		cron, zone, after string
		want              []string // UTC
	}{
		{"0 3 * * *", "", "2026-01-01T03:00:00Z", []string{"2026-01-02T03:00:00Z", "2026-01-03T03:00:00Z"}},
		{"*/20 9-10 * * 1-5", "", "2026-01-02T10:30:00Z", []string{"2026-01-02T10:40:00Z", "2026-01-05T09:00:00Z"}},
		{"0 0 13 * 5", "", "2026-02-01T00:00:00Z", []string{"2026-02-06T00:00:00Z", "2026-02-13T00:00:00Z", "2026-02-20T00:00:00Z"}},
		{"0 0 */10 * 1", "", "2026-02-01T00:00:00Z", []string{"2026-05-11T00:00:00Z"}}, // a star: both have to match
		{"0 12 29 2 *", "", "2096-03-01T00:00:00Z", []string{"2104-02-29T12:00:00Z"}},
		{"0 0 29 2 */7", "", "2026-02-01T00:00:00Z", []string{"2032-02-29T00:00:00Z", "2060-02-29T00:00:00Z"}},
		{"0 0 29 2 */6", "", "2032-03-01T00:00:00Z", []string{"2048-02-29T00:00:00Z", "2060-02-29T00:00:00Z"}},
		{"0 0 29 2 */7", "Europe/Berlin", "2088-03-01T00:00:00Z", []string{"2128-02-28T23:00:00Z"}}, // 2100 has none
		{"0 12 1 1 *", "Europe/Berlin", "2040-12-31T00:30:00Z", []string{"2041-01-01T11:00:00Z"}},
		{"*/60 */24 */31 */12 */8", "", "2026-01-02T00:00:00Z", []string{"2034-01-01T00:00:00Z"}},
		{"7-9/3,5/55 1-5/5 * jan-feb/2 1/7", "", "2026-01-01T00:00:00Z", []string{"2026-01-05T01:05:00Z", "2026-01-05T01:07:00Z"}},
		{"5/20 0 * * sun-mon", "", "2026-02-01T00:10:00Z", []string{"2026-02-01T00:25:00Z", "2026-02-01T00:45:00Z", "2026-02-02T00:05:00Z"}},
		{"0 12 * Nov-dec 6-7", "", "2026-02-01T00:00:00Z", []string{"2026-11-01T12:00:00Z", "2026-11-07T12:00:00Z", "2026-11-08T12:00:00Z"}},
		{"0-10/5,30 0 1,2-3 jan-2 *", "", "2026-02-03T00:05:00Z", []string{"2026-02-03T00:10:00Z", "2026-02-03T00:30:00Z", "2027-01-01T00:00:00Z"}},
		{"@daily", "Europe/Berlin", "2026-07-01T00:00:00Z", []string{"2026-07-01T22:00:00Z"}},

		// 02:30 is skipped, and fires when it has been.
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"}},
		{"0,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"}},
		{"30 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"}},
		{"0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"}},
		// 02:30 comes twice, and fires the first time.
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		{"30 3 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T02:30:00Z", "2026-10-26T02:30:00Z"}},
		// With a star, real time counts.
		{"30 * * * *", "Europe/Berlin", "2026-10-24T23:45:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"}},
		{"30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", []string{"2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"}},
		{"*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-30T00:00:00Z"}},
		{"*/30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"}},

		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", []string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"}},
		{"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", []string{"2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"}},
		// Midnight is skipped.
		{"30 0 * * *", "Africa/Cairo", "2026-04-23T12:00:00Z", []string{"2026-04-23T22:00:00Z", "2026-04-24T21:30:00Z"}},
		{"0 5 24 4 *", "Africa/Cairo", "2026-04-01T00:00:00Z", []string{"2026-04-24T02:00:00Z"}},
	} {
		r := Record{Schedule: Schedule{ID: "a", Cron: c.cron, Zone: c.zone}}
		if err := r.Check(); err != nil {
			t.Errorf("%s: %v", c.cron, err)
			continue
		}
		var got []string
		for next := at(t, c.after); len(got) < len(c.want); {
			next = r.times()(next)
			got = append(got, next.Format(time.RFC3339))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s in %q after %s:\n%q, want\n%q", c.cron, c.zone, c.after, got, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	for data, want := range map[string]string{
		``:                             "it is empty: want a JSON object with members of id",
		`[]`:                           "[]: want a JSON object with members of id, cron, ",
		`{"id":"a"}`:                   "cron: want it or every",
		`{"id":"a","cron":"@daily"} x`: "something comes after",
		`{"id":"a","cron":"@daily","every":"1s"}`:          "cron: want it or every",
		`{"id":"a","corn":"@daily"}`:                       `unknown member "corn"`,
		`{"id":"a","cron":7}`:                              `cron: 7: want a text in quotes`,
		`{"id":"a","cron":"0 3 * *"}`:                      "cron: \"0 3 * *\"",
		`{"id":"a","cron":"0 0 3 * * *"}`:                  "cron: ",
		`{"id":"a","cron":"60 3 * * *"}`:                   "cron: ",
		`{"id":"a","cron":"CRON_TZ=UTC 0 3 * * *"}`:        "cannot have a zone",
		`{"id":"a","cron":"0 0 30 2 *"}`:                   "no such time comes",
		`{"id":"a","cron":"*-5 * * * *"}`:                  `cron: "*-5 * * * *": "*-5" in "*-5" is none of "*", "5", "1-5"`,
		`{"id":"a","cron":"1,,2 * * * *"}`:                 `"" in "1,,2" is none of`,
		`{"id":"a","cron":"1, * * * *"}`:                   `"" in "1," is none of`,
		`{"id":"a","cron":",1 * * * *"}`:                   `"" in ",1" is none of`,
		`{"id":"a","cron":"+1 * * * *"}`:                   `"+1" in "+1" is none of`,
		`{"id":"a","cron":"0 0 ? * 1"}`:                    `"?" in "?" is none of`,
		`{"id":"a","cron":"1-5-7 * * * *"}`:                `"1-5-7" in`,
		`{"id":"a","cron":"5-1 * * * *"}`:                  `"5-1" goes backwards: write "22-5" as "22-23,0-5"`,
		`{"id":"a","cron":"0 1,22-5/2 * * *"}`:             `"22-5/2" goes backwards`,
		`{"id":"a","cron":"0 0 * nov-feb *"}`:              `"nov-feb" goes backwards`,
		`{"id":"a","cron":"0 0 * * sat-sun"}`:              `"sat-sun" goes backwards`,
		`{"id":"a","cron":"0 0 * * Fri-0"}`:                `"Fri-0" goes backwards`,
		`{"id":"a","cron":"0 0 * * 7-1"}`:                  `"7-1" goes backwards`,
		`{"id":"a","cron":"0 0 * * abc"}`:                  "cron: ",
		`{"id":"a","cron":"0 0 * * 99999999999999999999"}`: "cron: ",
		`{"id":"a","cron":"@every 1s","zone":"UTC"}`:       "zone: an interval has none",
		`{"id":"a","cron":"mon/99 0 * * *"}`:               "cron: ",
		`{"id":"a","cron":"@reboot"}`:                      "cron: ",
		`{"id":"a","cron":"@every 1ms"}`:                   "@every 15m",
		`{"id":"a","cron":"@every x"}`:                     "@every 15m",
		`{"id":"a","every":"999ms"}`:                       "every: 999ms: want 1s",
		`{"id":"a","every":"90000h"}`:                      "every: 90000h",
		`{"id":"a","every":"-1h"}`:                         "every: -1h",
		`{"id":"a","every":60}`:                            `every: 60: want a duration such as "15m"`,
		`{"id":"a","every":"1 minute"}`:                    `every: "1 minute": want a duration such as "15m"`,
		`{"id":"a","every":"1m","zone":"UTC"}`:             "zone: an interval has none",
		`{"id":"a","cron":"@daily","zone":"Berlin"}`:       `zone: "Berlin" is not known`,
		`{"id":"a","cron":"@daily","zone":"Local"}`:        `zone: "Local"`,
		`{"id":"a","every":"1m","jitter":"2h"}`:            "jitter: 2h",
		`{"id":"a","every":"1m","if_missed":"no"}`:         `if_missed: "no": want "once", "skip" or "all"`,
		`{"id":"a","every":"1m","overlap":"no"}`:           `overlap: "no": want "allow" or "skip"`,
		`{"id":"a","every":"1m","until":"soon"}`:           `until: "soon": want a time such as "2030-01-31T12:00:00Z"`,
		`{"id":"a","every":"1m","value":"%"}`:              `value: "%": want Base64 such as "aGk="`,
		" \n":                                              "it is empty",
		`{"id":"a","every":"1m","priority":"1"}`:           `priority: "1": want an integer, such as 5`,
		`{"id":"a","every":"1m","paused":"yes"}`:           `paused: "yes": want true or false`,
		`{"id":"a","Until":1}`:                             `unknown member "Until": want a JSON object with members of id, cron, `,
		`{"id":"a","every":"1m","value":"` + strings.Repeat("aaaa", MaxContent/3+1) + `"}`: "value: value and headers have",
		`{"id":"a","every":"1m","headers":{"a":"b"}}`:                                      `headers: a: "b": want an array of texts`,
	} {
		s, err := Decode[Schedule]([]byte(data))
		if err == nil {
			err = s.Check()
		}
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "want") || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%.80s: %v, want %q", data, err, want)
		}
	}
}

func TestFire(t *testing.T) {
	const minute = Duration(time.Minute)
	start := at(t, "2026-01-01T00:00:00Z")
	for _, c := range []struct {
		name    string
		s       Schedule
		away    time.Duration // after start
		limit   int
		want    []time.Duration // after start
		skipped int64
		next    time.Duration // after start; 0 is none
	}{
		{"none is due", Schedule{Every: minute}, 59 * time.Second, 9, nil, 0, time.Minute},
		{"in time", Schedule{Every: minute}, time.Minute, 9, []time.Duration{time.Minute}, 0, 2 * time.Minute},
		{"a minute late", Schedule{Every: minute, IfMissed: Skip}, 2 * time.Minute, 9, []time.Duration{time.Minute, 2 * time.Minute}, 0, 3 * time.Minute},
		{"often", Schedule{Every: Duration(time.Second)}, 3 * time.Second, 9, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, 0, 4 * time.Second},
		{"once", Schedule{Every: minute}, 10*time.Minute + time.Second, 9, []time.Duration{time.Minute, 10 * time.Minute}, 8, 11 * time.Minute},
		{"skip", Schedule{Every: minute, IfMissed: Skip}, 10*time.Minute + time.Second, 9, []time.Duration{10 * time.Minute}, 9, 11 * time.Minute},
		{"all, as many as there is room for", Schedule{Every: minute, IfMissed: All}, 10 * time.Minute, 3, []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute}, 0, 4 * time.Minute},
		{"of very many", Schedule{Every: Duration(time.Second)}, 20 * 365 * 24 * time.Hour, 2, []time.Duration{time.Second, 20*365*24*time.Hour - time.Minute}, mostCounted, 20*365*24*time.Hour - 59*time.Second},
		{"until", Schedule{Every: minute, Until: start.Add(2 * time.Minute)}, 2 * time.Minute, 9, []time.Duration{time.Minute, 2 * time.Minute}, 0, 0},
	} {
		r := Set(nil, &c.s, start)
		var got []time.Duration
		for _, at := range r.Fire(start.Add(c.away), c.limit) {
			got = append(got, at.Sub(start))
		}
		next := time.Duration(0)
		if !r.Next.IsZero() {
			next = r.Next.Sub(start)
		}
		if !slices.Equal(got, c.want) || r.Skipped != c.skipped || next != c.next {
			t.Errorf("%s: %v, %d skipped, next %v; want %v, %d, %v", c.name, got, r.Skipped, next, c.want, c.skipped, c.next)
		}
		if missed := r.Outcome == Missed; missed != (r.Skipped > 0) {
			t.Errorf("%s: outcome %q with %d skipped", c.name, r.Outcome, r.Skipped)
		}
	}
}

// The expression and the zone are read once, not for each time that was missed.
func TestFireOfManyMissed(t *testing.T) {
	start := at(t, "2026-01-01T00:00:00Z")
	r := Set(nil, &Schedule{Cron: "* * * * *", Zone: "Europe/Berlin"}, start)
	if n := testing.AllocsPerRun(1, func() {
		if again := *r; len(again.Fire(start.Add(24*time.Hour), 9)) != 3 || again.Skipped != mostCounted {
			t.Errorf("%d skipped", again.Skipped)
		}
	}); n > mostCounted {
		t.Errorf("%v allocations", n)
	}
}

func TestChanges(t *testing.T) {
	start := at(t, "2026-01-01T00:00:00Z")
	hourly := Schedule{ID: "a", Every: Duration(time.Hour)}
	r := Set(nil, &hourly, start)
	r.Last, r.Outcome, r.Fired, r.Skipped = start, Pushed, 7, 3

	again := Set(r, &Schedule{ID: "a", Every: hourly.Every, Priority: 2}, start.Add(90*time.Minute))
	if again.Priority != 2 || again.Fired != 7 || again.Skipped != 3 || again.Outcome != Pushed || !again.Last.Equal(start) || !again.Next.Equal(start.Add(2*time.Hour)) {
		t.Errorf("set again: %+v", again)
	}
	if other := Set(r, &Schedule{ID: "a", Every: 2 * hourly.Every}, start.Add(time.Minute)); !other.Next.Equal(start.Add(121 * time.Minute)) {
		t.Errorf("another interval: next %v", other.Next)
	}

	// The clock went back, over times that have fired.
	ahead := *r
	ahead.Last = start.Add(5 * time.Hour)
	for name, r := range map[string]*Record{
		"set again": Set(&ahead, &hourly, start), "goes on": ahead.Pause(true, start).Pause(false, start), "run": ahead.Run(start),
	} {
		if r.Fire(start, 9); !r.Next.Equal(start.Add(6 * time.Hour)) {
			t.Errorf("%s after the clock went back: next %v", name, r.Next)
		}
	}

	paused := r.Pause(true, start)
	if !paused.Next.IsZero() || !paused.Paused {
		t.Errorf("paused: %+v", paused)
	}
	run := paused.Run(start.Add(90 * time.Minute))
	if times := run.Fire(start.Add(91*time.Minute), 9); len(times) != 1 || !run.Next.IsZero() {
		t.Errorf("run while paused: %v, next %v", times, run.Next)
	}
	if on := paused.Pause(false, start.Add(90*time.Minute)); !on.Next.Equal(start.Add(2 * time.Hour)) {
		t.Errorf("goes on: next %v", on.Next)
	}
	if run := r.Run(start.Add(90 * time.Minute)); len(run.Fire(start.Add(90*time.Minute), 9)) != 1 || !run.Next.Equal(start.Add(2*time.Hour)) {
		t.Errorf("run: next %v", run.Next)
	}

	parsed, err := Parse(r.Encode())
	if err != nil || string(parsed.Encode()) != string(r.Encode()) {
		t.Errorf("parsed %+v: %v", parsed, err)
	}
	r.Jitter = Duration(time.Second)
	seen := map[time.Duration]bool{}
	for i := range 100 {
		base := start.Add(time.Duration(i) * time.Minute)
		for _, queue := range []string{"jobs", "mail"} {
			late := r.ReadyAt(queue, base).Sub(base)
			if seen[late] = true; late < 0 || late >= time.Second || late != r.ReadyAt(queue, base).Sub(base) {
				t.Errorf("jitter %v", late)
			}
		}
	}
	if len(seen) < 190 {
		t.Errorf("%d different jitters", len(seen))
	}
}

// When names the time zone of an expression, which an interval does not have.
func TestWhen(t *testing.T) {
	for want, s := range map[string]Schedule{
		"0 3 * * * UTC":        {Cron: "0 3 * * *"},
		"@daily Europe/Berlin": {Cron: "@daily", Zone: "Europe/Berlin"},
		"@every 90s":           {Cron: "@every 90s"},
		"every 1h":             {Every: Duration(time.Hour)},
	} {
		if got := s.When(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
