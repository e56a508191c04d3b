package settings

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// Values at their bounds are accepted; values beyond are refused with the bounds.
func TestBounds(t *testing.T) {
	years := func(year int) time.Time { return time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC) }
	var many []string
	for i := range MaxPausedGroups + 1 {
		many = append(many, strings.Repeat("x", 1+i))
	}

	for _, s := range []Settings{
		{
			AckWait:    100 * time.Millisecond,
			Backoff:    make([]time.Duration, 100),
			MaxDeliver: 1_000_000,
			DeadLetter: "x",
		},
		{
			AckWait:    12 * time.Hour,
			Backoff:    []time.Duration{87600 * time.Hour},
			TTL:        time.Second,
			PauseUntil: years(1970),
		},
		{
			TTL:             87600 * time.Hour,
			PauseUntil:      years(9999),
			Discard:         "new",
			DuplicateWindow: 100 * time.Millisecond,
		},
		{
			MaxLeased:       1e9,
			MaxItems:        1e9,
			MaxBytes:        1 << 50,
			Discard:         "old",
			DuplicateWindow: NoDuplicateWindow,
		},
		{DuplicateWindow: 87600 * time.Hour, PausedGroups: many[:MaxPausedGroups]},
		{PausedGroups: []string{strings.Repeat("x", 128), "tenant 7", "a,[\x00"}},
		{Keep: time.Second, KeepItems: 1},
		{Keep: 87600 * time.Hour, KeepItems: 1e9},
	} {
		for row := range All() {
			if err := row.Check(&s); err != nil {
				t.Errorf("%s of %+v: %v", row.Name, s, err)
			}
		}
	}

	const (
		hours = "87600h0m0s"
		life  = hours + ", or 0 for none"
		year  = " +0000 UTC: want a year from 1970 to 9999"
		name  = ": want 1 to 128 bytes of UTF-8 in one line, without blanks around it"
	)
	for want, s := range map[string]Settings{
		"ack_wait: 99ms: want 100ms to 12h0m0s":                   {AckWait: 99 * time.Millisecond},
		"ack_wait: 12h0m0.000000001s: want 100ms to 12h0m0s":      {AckWait: 12*time.Hour + 1},
		"max_deliver: -1: want 0 to 1000000":                      {MaxDeliver: -1},
		"max_deliver: 1000001: want 0 to 1000000":                 {MaxDeliver: 1_000_001},
		"max_leased: 1000000001: want 0 to 1000000000":            {MaxLeased: 1e9 + 1},
		"max_items: 1000000001: want 0 to 1000000000":             {MaxItems: 1e9 + 1},
		"keep_items: -1: want 0 to 1000000000":                    {KeepItems: -1},
		"keep_items: 1000000001: want 0 to 1000000000":            {KeepItems: 1e9 + 1},
		"max_bytes: 1125899906842625: want 0 to 1125899906842624": {MaxBytes: 1<<50 + 1},
		`discard: "OLD": want "new" or "old"`:                     {Discard: "OLD"},

		"ttl: 999.999999ms: want 1s to " + life:         {TTL: time.Second - 1},
		"ttl: 87600h0m0.000000001s: want 1s to " + life: {TTL: MaxDelay + 1},
		"keep: 999.999999ms: want 1s to " + life:        {Keep: time.Second - 1},
		"keep: -1ns: want 1s to " + life:                {Keep: -1},

		"keep: 87600h0m0.000000001s: want 1s to " + life: {Keep: MaxDelay + 1},
		"backoff: -1ns: want 0s to " + hours:             {Backoff: []time.Duration{1, -1}},
		"backoff: 101 durations: want at most 100":       {Backoff: make([]time.Duration, 101)},

		"backoff: 87600h0m0.000000001s: want 0s to " + hours: {
			Backoff: []time.Duration{MaxDelay + 1},
		},

		"duplicate_window: -2ns: want 100ms to " + hours: {DuplicateWindow: -2},
		"duplicate_window: 1ms: want 100ms to " + hours:  {DuplicateWindow: time.Millisecond},

		"duplicate_window: 87600h0m0.000000001s: want 100ms to " + hours: {
			DuplicateWindow: MaxDelay + 1,
		},

		"pause_until: 1969-06-01 00:00:00" + year:  {PauseUntil: years(1969)},
		"pause_until: 10000-06-01 00:00:00" + year: {PauseUntil: years(10_000)},

		"paused_groups: 65 names: want at most 64": {PausedGroups: many},
		`paused_groups: "é" is there twice`:        {PausedGroups: []string{"é", "b", "é"}},
		`paused_groups: a group ""` + name:         {PausedGroups: []string{""}},
		`paused_groups: a group "\u00e9 "` + name:  {PausedGroups: []string{"b", "é "}},
		`paused_groups: a group "\xff"` + name:     {PausedGroups: []string{"\xff"}},
		`paused_groups: a group "a\nb"` + name:     {PausedGroups: []string{"a\nb"}},
	} {
		var got []string
		for row := range All() {
			if err := row.Check(&s); err != nil {
				got = append(got, row.Name+": "+err.Error())
			}
		}

		if !slices.Equal(got, []string{want}) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Each field has one row in the table, with the default that counts while the field is not set.
func TestTable(t *testing.T) {
	var s Settings
	var fields []any
	for row := range All() {
		fields = append(fields, row.Field(&s))
		if n := utf8.RuneCountInString(row.About); n == 0 || n > 23 {
			t.Errorf("%s: there are %d letters about it", row.Name, n)
		}
		if Find(row.Name) != row || row.IsSet(&s) || row.Check(&s) != nil {
			t.Errorf("%s: not found, or set", row.Name)
		}
	}

	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		name := strings.ToLower(v.Type().Field(i).Name)
		if fields[i] != v.Field(i).Addr().Interface() ||
			strings.ReplaceAll(table[i].Name, "_", "") != name {
			t.Errorf("the row of %s is not the one in its place", name)
		}
	}

	defaults := map[string]any{
		"ack_wait":         s.LeaseWait(),
		"discard":          DiscardNew,
		"duplicate_window": s.Window(),
		"keep_items":       s.MostKept(),
	}
	for row := range All() {
		if row.Default != defaults[row.Name] {
			t.Errorf("%s is %v by default: the table says %v",
				row.Name, defaults[row.Name], row.Default)
		}
	}

	if len(fields) != v.NumField() || Find("ack") != nil {
		t.Error("the table has more rows than there are fields")
	}
}

// The interval of a rate is rounded up, so that no period has one delivery too many.
func TestIntervals(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10/1s":      100 * time.Millisecond,
		"7/1s":       142_857_143,
		"1000000/1s": 1000,
		"999999/1s":  1001,
		"1/24h":      24 * time.Hour,
	} {
		rate, err := ParseRate(text)
		if got := rate.Interval(); err != nil || got != want {
			t.Errorf("%s: %v, %v; want %v", text, got, err, want)
		}
	}
}

// The delay doubles with each delivery, up to a minute or the first delay, whichever is longer. A
// backoff takes its place.
func TestRetryAfter(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		backoff                   []time.Duration
		first                     time.Duration
		want1, want2, want3, most time.Duration // after 1, 2, 3 and very many deliveries
	}{
		{nil, 10 * ms, 10 * ms, 20 * ms, 40 * ms, LongestRetry},
		{nil, 40 * time.Second, 40 * time.Second, LongestRetry, LongestRetry, LongestRetry},
		{nil, time.Hour, time.Hour, time.Hour, time.Hour, time.Hour},
		{nil, MaxDelay, MaxDelay, MaxDelay, MaxDelay, MaxDelay},
		{nil, 0, 0, 0, 0, 0},
		{[]time.Duration{0, 5}, time.Hour, 0, 5, 5, 5},
	} {
		s := &Settings{Backoff: test.backoff}
		for deliveries, want := range map[int64]time.Duration{
			0:       test.want1,
			1:       test.want1,
			2:       test.want2,
			3:       test.want3,
			1 << 40: test.most,
		} {
			if got := s.RetryAfter(deliveries, test.first); got != want {
				t.Errorf("%+v: %v after %d deliveries, want %v", test, got, deliveries, want)
			}
		}
	}
}
