package schedule

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

// at parses a time in RFC 3339.
func at(t *testing.T, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// A cron expression fires at the times of its zone's clock, also where that clock is changed.
//
// Berlin sets its clock forward on 2026-03-29 at 01:00 UTC and back on 2026-10-25 at 01:00 UTC;
// Lord Howe, by half an hour, back on 2026-04-04 at 15:00 UTC and forward on 2026-10-03 at 15:30
// UTC.
func TestTimes(t *testing.T) {
	for _, c := range []struct {
		cron, zone, after string
		want              []string // UTC
	}{
		{
			"0 3 * * *", "", "2026-01-01T03:00:00Z",
			[]string{"2026-01-02T03:00:00Z", "2026-01-03T03:00:00Z"},
		},
		{
			"*/20 9-10 * * 1-5", "", "2026-01-02T10:30:00Z",
			[]string{"2026-01-02T10:40:00Z", "2026-01-05T09:00:00Z"},
		},
		// Without a star, one of the two days has to match: the 13th or a Friday.
		{
			"0 0 13 * 5", "", "2026-02-01T00:00:00Z",
			[]string{"2026-02-06T00:00:00Z", "2026-02-13T00:00:00Z", "2026-02-20T00:00:00Z"},
		},
		// With a star, both days have to match.
		{"0 0 */10 * 1", "", "2026-02-01T00:00:00Z", []string{"2026-05-11T00:00:00Z"}},

		// A leap day, on any day of the week, a Sunday or a Saturday or Sunday.
		{"0 12 29 2 *", "", "2096-03-01T00:00:00Z", []string{"2104-02-29T12:00:00Z"}},
		{
			"0 0 29 2 */7", "", "2026-02-01T00:00:00Z",
			[]string{"2032-02-29T00:00:00Z", "2060-02-29T00:00:00Z"},
		},
		{
			"0 0 29 2 */6", "", "2032-03-01T00:00:00Z",
			[]string{"2048-02-29T00:00:00Z", "2060-02-29T00:00:00Z"},
		},
		// 2100 has no 29 February.
		{"0 0 29 2 */7", "Europe/Berlin", "2088-03-01T00:00:00Z", []string{"2128-02-28T23:00:00Z"}},
		{"0 12 1 1 *", "Europe/Berlin", "2040-12-31T00:30:00Z", []string{"2041-01-01T11:00:00Z"}},

		// Steps, ranges, lists and names.
		{"*/60 */24 */31 */12 */8", "", "2026-01-02T00:00:00Z", []string{"2034-01-01T00:00:00Z"}},
		{
			"7-9/3,5/55 1-5/5 * jan-feb/2 1/7", "", "2026-01-01T00:00:00Z",
			[]string{"2026-01-05T01:05:00Z", "2026-01-05T01:07:00Z"},
		},
		{
			"5/20 0 * * sun-mon", "", "2026-02-01T00:10:00Z",
			[]string{"2026-02-01T00:25:00Z", "2026-02-01T00:45:00Z", "2026-02-02T00:05:00Z"},
		},
		{
			"0 12 * Nov-dec 6-7", "", "2026-02-01T00:00:00Z",
			[]string{"2026-11-01T12:00:00Z", "2026-11-07T12:00:00Z", "2026-11-08T12:00:00Z"},
		},
		{
			"0-10/5,30 0 1,2-3 jan-2 *", "", "2026-02-03T00:05:00Z",
			[]string{"2026-02-03T00:10:00Z", "2026-02-03T00:30:00Z", "2027-01-01T00:00:00Z"},
		},
		{"@daily", "Europe/Berlin", "2026-07-01T00:00:00Z", []string{"2026-07-01T22:00:00Z"}},

		// 02:30 is skipped, and fires at 03:00.
		{
			"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		},
		{
			"0,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"},
		},
		{
			"30 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"},
		},
		{
			"0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"},
		},
		// 02:30 comes twice, and fires the first time.
		{
			"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		},
		{
			"30 3 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T02:30:00Z", "2026-10-26T02:30:00Z"},
		},
		// With a star, real time counts.
		{
			"30 * * * *", "Europe/Berlin", "2026-10-24T23:45:00Z",
			[]string{"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"},
		},
		{
			"30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z",
			[]string{"2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"},
		},
		{"*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-30T00:00:00Z"}},
		{
			"*/30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{
				"2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z",
				"2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z",
			},
		},

		// On Lord Howe, 02:15 is skipped, and 01:45 comes twice.
		{
			"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z",
			[]string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"},
		},
		{
			"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z",
			[]string{"2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"},
		},
		// Midnight is skipped.
		{
			"30 0 * * *", "Africa/Cairo", "2026-04-23T12:00:00Z",
			[]string{"2026-04-23T22:00:00Z", "2026-04-24T21:30:00Z"},
		},
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

// A schedule that cannot be set is refused with what would be right, without Go's own words.
func TestCheck(t *testing.T) {
	tooLarge := `{"id":"a","every":"1m","value":"` + strings.Repeat("aaaa", MaxContent/3+1) + `"}`
	for data, want := range map[string]string{
		``:                             "it is empty: want a JSON object with members of id",
		" \n":                          "it is empty",
		`[]`:                           "[]: want a JSON object with members of id, cron, ",
		`{"id":"a"}`:                   "cron: want it or every",
		`{"id":"a","cron":"@daily"} x`: "something comes after",
		`{"id":"a","corn":"@daily"}`:   `unknown member "corn"`,
		`{"id":"a","Until":1}`: `unknown member "Until": ` +
			`want a JSON object with members of id, cron, `,

		`{"id":"a","cron":7}`:                              `cron: 7: want a string in quotes`,
		`{"id":"a","cron":"@daily","every":"1s"}`:          "cron: want it or every",
		`{"id":"a","cron":"0 3 * *"}`:                      "cron: \"0 3 * *\"",
		`{"id":"a","cron":"0 0 3 * * *"}`:                  "cron: ",
		`{"id":"a","cron":"60 3 * * *"}`:                   "cron: ",
		`{"id":"a","cron":"CRON_TZ=UTC 0 3 * * *"}`:        "cannot have a zone",
		`{"id":"a","cron":"0 0 30 2 *"}`:                   "no such time comes",
		`{"id":"a","cron":"1,,2 * * * *"}`:                 `"" in "1,,2" is not of a form such as`,
		`{"id":"a","cron":"1, * * * *"}`:                   `"" in "1," is not of a form such as`,
		`{"id":"a","cron":",1 * * * *"}`:                   `"" in ",1" is not of a form such as`,
		`{"id":"a","cron":"+1 * * * *"}`:                   `"+1" in "+1" is not of a form such as`,
		`{"id":"a","cron":"0 0 ? * 1"}`:                    `"?" in "?" is not of a form such as`,
		`{"id":"a","cron":"1-5-7 * * * *"}`:                `"1-5-7" in`,
		`{"id":"a","cron":"0 1,22-5/2 * * *"}`:             `"22-5/2" goes backwards`,
		`{"id":"a","cron":"0 0 * nov-feb *"}`:              `"nov-feb" goes backwards`,
		`{"id":"a","cron":"0 0 * * sat-sun"}`:              `"sat-sun" goes backwards`,
		`{"id":"a","cron":"0 0 * * Fri-0"}`:                `"Fri-0" goes backwards`,
		`{"id":"a","cron":"0 0 * * 7-1"}`:                  `"7-1" goes backwards`,
		`{"id":"a","cron":"0 0 * * abc"}`:                  "cron: ",
		`{"id":"a","cron":"0 0 * * 99999999999999999999"}`: "cron: ",
		`{"id":"a","cron":"mon/99 0 * * *"}`:               "cron: ",
		`{"id":"a","cron":"@reboot"}`:                      "cron: ",

		`{"id":"a","cron":"5-1 * * * *"}`: `"5-1" goes backwards: write "22-5" as "22-23,0-5"`,
		`{"id":"a","cron":"*-5 * * * *"}`: `cron: "*-5 * * * *": ` +
			`"*-5" in "*-5" is not of a form such as "*", "5", "1-5"`,

		`{"id":"a","cron":"@every 1s","zone":"UTC"}`: "zone: an interval has none",
		`{"id":"a","cron":"@every 1ms"}`:             "@every 15m",
		`{"id":"a","cron":"@every x"}`:               "@every 15m",
		`{"id":"a","every":"999ms"}`:                 "every: 999ms: want 1s",
		`{"id":"a","every":"90000h"}`:                "every: 90000h",
		`{"id":"a","every":"-1h"}`:                   "every: -1h",
		`{"id":"a","every":60}`:                      `every: 60: want a duration such as "15m"`,
		`{"id":"a","every":"1m","zone":"UTC"}`:       "zone: an interval has none",
		`{"id":"a","cron":"@daily","zone":"Berlin"}`: `zone: "Berlin" is not known`,
		`{"id":"a","cron":"@daily","zone":"Local"}`:  `zone: "Local"`,
		`{"id":"a","every":"1m","jitter":"2h"}`:      "jitter: 2h",
		`{"id":"a","every":"1m","overlap":"no"}`:     `overlap: "no": want "allow" or "skip"`,
		`{"id":"a","every":"1m","paused":"yes"}`:     `paused: "yes": want true or false`,
		`{"id":"a","every":"1m","value":"%"}`:        `value: "%": want Base64 such as "aGk="`,
		`{"id":"a","every":"1m","priority":"1"}`:     `priority: "1": want an integer, such as 5`,
		tooLarge:                                     "value: value and headers have",

		`{"id":"a","every":"1 minute"}`: `every: "1 minute": ` +
			`want a duration such as "15m"`,
		`{"id":"a","every":"1m","if_missed":"no"}`: `if_missed: "no": ` +
			`want "once", "skip" or "all"`,
		`{"id":"a","every":"1m","until":"soon"}`: `until: "soon": ` +
			`want a time such as "2030-01-31T12:00:00Z"`,
		`{"id":"a","every":"1m","headers":{"a":"b"}}`: `headers: a: "b": ` +
			`want an array of strings`,
	} {
		s, err := Decode[Schedule]([]byte(data))
		if err == nil {
			err = s.Check()
		}

		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", data, err, want)
			continue
		}
		if !strings.Contains(err.Error(), "want") || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%.80s: the error does not say what is wanted: %v", data, err)
		}
	}
}

// A schedule fires at each time that is due. Of the times it missed, more than a minute ago, it
// fires the first, none or all, as IfMissed says, and counts the others as skipped.
func TestFire(t *testing.T) {
	const (
		minute = Duration(time.Minute)
		years  = 20 * 365 * 24 * time.Hour
	)
	start := at(t, "2026-01-01T00:00:00Z")

	for _, c := range []struct {
		name    string
		s       Schedule
		away    time.Duration   // after start
		limit   int             // 9 if it is 0
		want    []time.Duration // after start
		skipped int64
		next    time.Duration // after start; 0 is none
	}{
		{
			name: "none is due",
			s:    Schedule{Every: minute},
			away: 59 * time.Second,
			next: time.Minute,
		},
		{
			name: "in time",
			s:    Schedule{Every: minute},
			away: time.Minute,
			want: []time.Duration{time.Minute},
			next: 2 * time.Minute,
		},
		{
			name: "a minute late is not missed",
			s:    Schedule{Every: minute, IfMissed: Skip},
			away: 2 * time.Minute,
			want: []time.Duration{time.Minute, 2 * time.Minute},
			next: 3 * time.Minute,
		},
		{
			name: "several in time",
			s:    Schedule{Every: Duration(time.Second)},
			away: 3 * time.Second,
			want: []time.Duration{time.Second, 2 * time.Second, 3 * time.Second},
			next: 4 * time.Second,
		},
		{
			name:    "the first of those missed, by default",
			s:       Schedule{Every: minute},
			away:    10*time.Minute + time.Second,
			want:    []time.Duration{time.Minute, 10 * time.Minute},
			skipped: 8,
			next:    11 * time.Minute,
		},
		{
			name:    "none of those missed",
			s:       Schedule{Every: minute, IfMissed: Skip},
			away:    10*time.Minute + time.Second,
			want:    []time.Duration{10 * time.Minute},
			skipped: 9,
			next:    11 * time.Minute,
		},
		{
			name:  "all, as many as there is room for",
			s:     Schedule{Every: minute, IfMissed: All},
			away:  10 * time.Minute,
			limit: 3,
			want:  []time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute},
			next:  4 * time.Minute,
		},
		{
			name:    "very many missed, not all of them counted",
			s:       Schedule{Every: Duration(time.Second)},
			away:    years,
			limit:   2,
			want:    []time.Duration{time.Second, years - time.Minute},
			skipped: mostCounted,
			next:    years - 59*time.Second,
		},
		{
			name: "none after until",
			s:    Schedule{Every: minute, Until: start.Add(2 * time.Minute)},
			away: 2 * time.Minute,
			want: []time.Duration{time.Minute, 2 * time.Minute},
		},
	} {
		r := Set(nil, &c.s, start)

		var got []time.Duration
		for _, at := range r.Fire(start.Add(c.away), cmp.Or(c.limit, 9)) {
			got = append(got, at.Sub(start))
		}

		next := time.Duration(0)
		if !r.Next.IsZero() {
			next = r.Next.Sub(start)
		}
		if !slices.Equal(got, c.want) || r.Skipped != c.skipped || next != c.next {
			t.Errorf("%s: %v, %d skipped, next %v; want %v, %d, %v",
				c.name, got, r.Skipped, next, c.want, c.skipped, c.next)
		}
		if missed := r.Outcome == Missed; missed != (r.Skipped > 0) {
			t.Errorf("%s: outcome %q with %d skipped", c.name, r.Outcome, r.Skipped)
		}
	}
}

// However many times were missed, the expression and the zone are read once: there are fewer
// allocations than missed times.
func TestFireOfManyMissed(t *testing.T) {
	start := at(t, "2026-01-01T00:00:00Z")
	r := Set(nil, &Schedule{Cron: "* * * * *", Zone: "Europe/Berlin"}, start)

	n := testing.AllocsPerRun(1, func() {
		again := *r

		// The first that was missed, and the two of the last minute.
		if len(again.Fire(start.Add(24*time.Hour), 9)) != 3 || again.Skipped != mostCounted {
			t.Errorf("%d skipped", again.Skipped)
		}
	})
	if n > mostCounted {
		t.Errorf("%v allocations", n)
	}
}

// hourly returns a schedule of every hour that was set and last fired at start, and has fired seven
// times and skipped three.
func hourly(start time.Time) *Record {
	r := Set(nil, &Schedule{ID: "a", Every: Duration(time.Hour)}, start)
	r.Last, r.Outcome, r.Fired, r.Skipped = start, Pushed, 7, 3
	return r
}

// A schedule that is set again keeps its counts, and its times if the interval stays. A new
// interval begins when it is set.
func TestSetAgain(t *testing.T) {
	start := at(t, "2026-01-01T00:00:00Z")
	r := hourly(start)

	again := Set(r, &Schedule{ID: "a", Every: r.Every, Priority: 2}, start.Add(90*time.Minute))
	if again.Priority != 2 || again.Fired != 7 || again.Skipped != 3 ||
		again.Outcome != Pushed || !again.Last.Equal(start) {
		t.Errorf("set again: %+v", again)
	}
	if !again.Next.Equal(start.Add(2 * time.Hour)) {
		t.Errorf("set again: next %v", again.Next)
	}

	other := Set(r, &Schedule{ID: "a", Every: 2 * r.Every}, start.Add(time.Minute))
	if !other.Next.Equal(start.Add(time.Minute + 2*time.Hour)) {
		t.Errorf("another interval: next %v", other.Next)
	}
}

// If the clock went back over times that have fired, none of them fires again, even if the schedule
// is set again, paused or run meanwhile.
func TestClockWentBack(t *testing.T) {
	start := at(t, "2026-01-01T00:00:00Z")
	ahead := hourly(start)
	ahead.Last = start.Add(5 * time.Hour)

	for name, r := range map[string]*Record{
		"set again": Set(ahead, &ahead.Schedule, start),
		"paused":    ahead.Pause(true, start).Pause(false, start),
		"run":       ahead.Run(start),
	} {
		if r.Fire(start, 9); !r.Next.Equal(start.Add(6 * time.Hour)) {
			t.Errorf("%s after the clock went back: next %v", name, r.Next)
		}
	}
}

// A paused schedule fires only when it is run, and later goes on with its next time. To run a
// schedule that is not paused does not change its next time.
func TestPauseAndRun(t *testing.T) {
	start := at(t, "2026-01-01T00:00:00Z")
	later := start.Add(90 * time.Minute)
	r := hourly(start)

	paused := r.Pause(true, start)
	if !paused.Next.IsZero() || !paused.Paused {
		t.Errorf("paused: %+v", paused)
	}

	run := paused.Run(later)
	if times := run.Fire(later.Add(time.Minute), 9); len(times) != 1 || !run.Next.IsZero() {
		t.Errorf("run while paused: %v, next %v", times, run.Next)
	}

	on := paused.Pause(false, later)
	if !on.Next.Equal(start.Add(2 * time.Hour)) {
		t.Errorf("goes on: next %v", on.Next)
	}

	run = r.Run(later)
	times := run.Fire(later, 9)
	if len(times) != 1 || !run.Next.Equal(start.Add(2*time.Hour)) {
		t.Errorf("run: %v, next %v", times, run.Next)
	}
}

// A record is read as it was stored.
func TestParse(t *testing.T) {
	r := hourly(at(t, "2026-01-01T00:00:00Z"))

	parsed, err := Parse(r.Encode())
	if err != nil || string(parsed.Encode()) != string(r.Encode()) {
		t.Errorf("parsed %+v: %v", parsed, err)
	}
}

// Jitter makes items late by less than it. How much differs from time to time and from queue to
// queue, and is the same when it is asked again.
func TestJitter(t *testing.T) {
	start := at(t, "2026-01-01T00:00:00Z")
	s := Schedule{ID: "a", Every: Duration(time.Hour), Jitter: Duration(time.Second)}
	seen := map[time.Duration]bool{}

	const times, queues = 100, 2
	for i := range times {
		base := start.Add(time.Duration(i) * time.Minute)
		for _, queue := range []string{"jobs", "mail"} {
			late := s.ReadyAt(queue, base).Sub(base)
			seen[late] = true
			if late < 0 || late >= time.Second || late != s.ReadyAt(queue, base).Sub(base) {
				t.Errorf("jitter %v", late)
			}
		}
	}

	if len(seen) < times*queues*95/100 { // two may be the same by chance
		t.Errorf("%d different jitters", len(seen))
	}
}

// When returns the expression with its time zone, UTC by default, or the interval, which has none.
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
