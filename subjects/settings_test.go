package subjects_test

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// all has every setting as JSON, in order, and allReset resets each of them.
const (
	all = `{"ack_wait":"1m0s","backoff":["1s","10s"],"max_deliver":5,"dead_letter":"123",` +
		`"ttl":"1h0m0s","pause_until":"2030-01-31T12:00:00.000000Z","max_leased":3,` +
		`"max_items":4,"max_bytes":5,"discard":"old","duplicate_window":"0s",` +
		`"max_leased_per_group":6,"rate":"10/1s","rate_per_group":"1/24h",` +
		`"paused_groups":["acme","tenant 7"],"keep":"24h0m0s","keep_items":8,` +
		`"next":["mail","index"]}`
	allReset = `{"ack_wait":null,"backoff":null,"max_deliver":null,"dead_letter":null,` +
		`"ttl":null,"pause_until":null,"max_leased":null,"max_items":null,"max_bytes":null,` +
		`"discard":null,"duplicate_window":null,"max_leased_per_group":null,"rate":null,` +
		`"rate_per_group":null,"paused_groups":null,"keep":null,"keep_items":null,"next":null}`
)

// allSet are the settings in all.
var allSet = settings.Settings{
	AckWait:           time.Minute,
	Backoff:           []time.Duration{time.Second, 10 * time.Second},
	MaxDeliver:        5,
	DeadLetter:        "123",
	TTL:               time.Hour,
	PauseUntil:        time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC),
	MaxLeased:         3,
	MaxItems:          4,
	MaxBytes:          5,
	Discard:           settings.DiscardOld,
	DuplicateWindow:   settings.NoDuplicateWindow,
	MaxLeasedPerGroup: 6,
	Rate:              "10/1s",
	RatePerGroup:      "1/24h",
	PausedGroups:      []string{"acme", "tenant 7"},
	Keep:              24 * time.Hour,
	KeepItems:         8,
	Next:              []string{"mail", "index"},
}

// A change is read, and written again in one form: each setting in its place and notation.
func TestChange(t *testing.T) {
	for _, test := range []struct{ name, payload, again string }{
		{"nothing", `{}`, `{}`},
		{"everything", all, all},
		{"everything reset", allReset, allReset},
		{
			"order, and durations in nanoseconds",
			`{"backoff":["1s",2000000000,"0s"],"ack_wait":"1m30s"}`,
			`{"ack_wait":"1m30s","backoff":["1s","2s","0s"]}`,
		},
		{
			"a zero value resets",
			`{"ack_wait":0,"backoff":[],"max_deliver":0}`,
			`{"ack_wait":null,"backoff":null,"max_deliver":null}`,
		},
		{
			"but a duplicate_window of 0 is none, while the default is two minutes",
			`{"ttl":"0s","duplicate_window":0}`,
			`{"ttl":null,"duplicate_window":"0s"}`,
		},
		{
			"the largest numbers",
			`{"max_deliver":1000000,"max_items":1000000000}`,
			`{"max_deliver":1000000,"max_items":1000000000}`,
		},
		{
			"the largest number of bytes, 1 PiB",
			`{"max_bytes":1125899906842624,"discard":"new"}`,
			`{"max_bytes":1125899906842624,"discard":"new"}`,
		},
		{
			"some groups, in order",
			`{"paused_groups":{"b":true,"a":false}}`,
			`{"paused_groups":{"a":false,"b":true}}`,
		},
		{"no group changes", `{"paused_groups":{}}`, `{}`},
		{"no group is paused", `{"paused_groups":[]}`, `{"paused_groups":null}`},
		{
			"a time in UTC",
			`{"pause_until":"2030-01-31T13:00:00.000001+01:00"}`,
			`{"pause_until":"2030-01-31T12:00:00.000001Z"}`,
		},
		{
			"a time is rounded up to microseconds",
			`{"pause_until":"2030-01-31T12:00:00.000000001Z"}`,
			`{"pause_until":"2030-01-31T12:00:00.000001Z"}`,
		},
	} {
		c, err := subjects.ParseChange([]byte(test.payload))
		if err != nil || string(c.Encode()) != test.again {
			t.Errorf("%s: %s: %s, %v: want %s",
				test.name, test.payload, c.Encode(), err, test.again)
		}
	}

	c, err := subjects.ParseChange([]byte(all))
	written := string(subjects.EncodeSettings(&allSet))
	if err != nil || !reflect.DeepEqual(c.Settings, allSet) || written != all {
		t.Errorf("%s is read as %+v, %v, and written %s", all, c, err, written)
	}
}

// A change sets, resets and pauses what it names, and keeps the rest. Settings that this package
// does not know can be reset.
func TestApplyChange(t *testing.T) {
	now := settings.Settings{MaxItems: 7, TTL: time.Minute, MaxBytes: 9}
	change := &subjects.Change{
		Settings: settings.Settings{MaxItems: 8, Discard: "new"},
		Reset:    []string{"ttl"},
	}

	change.Apply(&now)
	want := settings.Settings{MaxItems: 8, Discard: "new", MaxBytes: 9}
	if !reflect.DeepEqual(now, want) {
		t.Errorf("changed to %+v, want %+v", now, want)
	}

	// Of the groups, "a" and "c" are to be paused, and "b" and "d" are not.
	some := settings.Settings{PausedGroups: []string{"b", "a"}}
	change = &subjects.Change{Groups: map[string]bool{"a": true, "b": false, "c": true, "d": false}}

	change.Apply(&some)
	if want := []string{"a", "c"}; !reflect.DeepEqual(some.PausedGroups, want) {
		t.Errorf("paused %q, want %q", some.PausedGroups, want)
	}

	// A newer bridge may know settings that this package does not.
	later := subjects.Change{Reset: []string{`a"b`}}
	if got := string(later.Encode()); got != `{"a\"b":null}` {
		t.Error(got)
	}
}

// A bad setting is refused, and the error says what is wrong or would be right.
func TestBadChange(t *testing.T) {
	manyBackoffs := `{"backoff":[` + strings.Repeat("1,", 100) + `1]}`
	longName := `{"dead_letter":"` + strings.Repeat("x", 129) + `"}`
	for payload, words := range map[string]string{
		``:                               "it is empty: want a JSON object",
		`null`:                           "null: want a JSON object",
		`{"ttl":"1h","ttl":null}`:        `"ttl" given twice: want a JSON object`,
		`{"discard":""}`:                 `discard: "": want a string that is not empty, or null`,
		`{"duplicate_window":-1}`:        "duplicate_window: -1ns: want 100ms to",
		`{"ttl2":1}`:                     `unknown member "ttl2"`,
		`{"ack_wait":"99ms"}`:            `ack_wait: 99ms: want 100ms to 12h`,
		`{"backoff":"1s"}`:               `backoff: "1s": want an array`,
		`{"backoff":["1s","-1s"]}`:       "backoff: -1s: want 0s to",
		manyBackoffs:                     "backoff: 101 durations: want at most 100",
		`{"max_deliver":-1}`:             "max_deliver: -1: want 0 to 1000000",
		`{"dead_letter":""}`:             "is empty",
		`{"dead_letter":"a.b"}`:          "letters, digits",
		longName:                         "129 bytes",
		`{"discard":"OLD"}`:              `discard: "OLD": want "new" or "old"`,
		`{"rate":"0/1s"}`:                `"0/1s"`,
		`{"rate":"1000001/1s"}`:          `1 to 1000000`,
		`{"rate_per_group":"10/0s"}`:     `rate_per_group: "10/0s"`,
		`{"paused_groups":"acme"}`:       `paused_groups: "acme": want an array of strings`,
		`{"paused_groups":["a","a"]}`:    `paused_groups: "a" is there twice`,
		`{"next":"mail"}`:                `next: "mail": want an array of strings`,
		`{"next":["a","a"]}`:             `next: "a" is there twice`,
		`{"next":["a",""]}`:              `next: "" is empty`,
		`{"next":["a.b"]}`:               `next: "a.b" holds "."`,
		manyQueues(settings.MaxNext + 1): "next: 17 names: want at most 16",
		`{"paused_groups":["a",5]}`:      `paused_groups: element 1: 5: want a string in quotes`,
		`{"paused_groups":{"":true}}`:    `paused_groups: a group "": want 1 to 128 bytes`,
		`{"paused_groups":{"a":1}}`:      `paused_groups: a: 1: want true or false`,

		`{"rate":"10"}`: `rate: "10": want n/duration, such as "10/1s", ` +
			`with 1 to 1000000 and 1s to 24h`,
		`{"paused_groups":[" a"]}`: `paused_groups: a group " a": want 1 to 128 bytes of UTF-8 ` +
			`in one line, without blanks around it`,
		manyGroups(settings.MaxPausedGroups + 1): "paused_groups: 65 names: want at most 64",

		`{"max_bytes":1125899906842625}`:              "want 0 to 1125899906842624",
		`{"max_leased_per_group":1000000001}`:         "want 0 to 1000000000",
		`{"paused_groups":{"a":null}}`:                `paused_groups: a: null: want`,
		`{"pause_until":"1h"}`:                        `want a time such as "2030-01-31T12:00:00Z"`,
		`{"pause_until":"1969-12-31T23:59:59Z"}`:      "a year from 1970 to 9999",
		`{"pause_until":"9999-12-31T23:59:59-01:00"}`: "a year from 1970 to 9999",
	} {
		_, err := subjects.ParseChange([]byte(payload))
		if !errors.Is(err, subjects.ErrOptions) || !strings.Contains(fmt.Sprint(err), words) {
			t.Errorf("%s: %v, want %q", payload, err, words)
		}
	}
}

// manyGroups is a change that pauses n groups and leaves the others as they are.
func manyGroups(n int) string {
	groups := map[string]bool{}
	for i := range n {
		groups[strconv.Itoa(i)] = true
	}
	return string((&subjects.Change{Groups: groups}).Encode())
}

// manyQueues is a change that names n queues for successors.
func manyQueues(n int) string {
	s := settings.Settings{}
	for i := range n {
		s.Next = append(s.Next, strconv.Itoa(i))
	}
	return string((&subjects.Change{Settings: s}).Encode())
}

// A change of settings is within the bounds and read again as it is written, or refused with an
// error that fits into a header.
func FuzzSettings(f *testing.F) {
	f.Add([]byte(all))
	f.Add([]byte(allReset))
	f.Add([]byte(`{"paused_groups":{"b":true,"a":false}}`))
	f.Add([]byte(`{"ack_wait":0,"backoff":["1s",5],"duplicate_window":0}`))
	f.Add([]byte(`{"paused_groups":[],"backoff":[],"next":[]}`))

	f.Fuzz(func(t *testing.T, payload []byte) {
		c, err := subjects.ParseChange(payload)
		if err != nil {
			subjects.WantSendable(t, err, subjects.ErrOptions)
			return
		}

		for row := range settings.All() {
			if err := row.Check(&c.Settings); err != nil {
				t.Errorf("%q: %s: %v", payload, row.Name, err)
			}
		}

		again, err := subjects.ParseChange(c.Encode())
		if err != nil || !reflect.DeepEqual(again.Settings, c.Settings) ||
			string(again.Encode()) != string(c.Encode()) {
			t.Errorf("%q is %+v, encoded %s, then %+v, %v", payload, c, c.Encode(), again, err)
		}
	})
}

// A reply with settings is read even if a newer bridge has more of them.
func TestSettingsReply(t *testing.T) {
	got, err := subjects.ParseSettings([]byte(`{"later":{},` + all[1:]))
	if err != nil || !reflect.DeepEqual(*got, allSet) {
		t.Errorf("%+v, %v: want %+v", got, err, allSet)
	}

	for _, bad := range []string{"", "5", `{"ack_wait":true}`} {
		if got, err := subjects.ParseSettings([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

// Settings are listed as name=value, and changed with a name and a value, where an empty one
// resets. Of two changes of a setting the later counts, and a bad one changes nothing.
func TestSettingsAsText(t *testing.T) {
	const want = "ack_wait=1m0s backoff=1s,10s max_deliver=5 dead_letter=123 ttl=1h0m0s " +
		"pause_until=2030-01-31T12:00:00.000000Z " +
		"max_leased=3 max_items=4 max_bytes=5 discard=old duplicate_window=0s " +
		"max_leased_per_group=6 rate=10/1s rate_per_group=1/24h " +
		"paused_groups=acme,tenant 7 keep=24h0m0s keep_items=8 next=mail,index"

	texts := subjects.SettingTexts(&allSet)
	if got := strings.Join(texts, " "); got != want {
		t.Errorf("%s, want %s", got, want)
	}

	// Each setting is reset and then set in one change, and the other way around in the other.
	var set, reset subjects.Change
	for _, text := range texts {
		name, value, _ := strings.Cut(text, "=")
		err := errors.Join(
			set.Set(name, ""),
			set.Set(name, value),
			reset.Set(name, value),
			reset.Set(name, ""),
		)
		if err != nil {
			t.Error(err)
		}
	}

	if string(set.Encode()) != all || string(reset.Encode()) != allReset {
		t.Errorf("%s, and %s", set.Encode(), reset.Encode())
	}

	// Groups whose names do not fit into a list with commas are listed as JSON.
	for _, names := range [][]string{{"a,b", "c"}, {"[a"}, {`{"a":1}`}, {"a", `"b"`, "ü"}} {
		var c subjects.Change
		listed := subjects.SettingTexts(&settings.Settings{PausedGroups: names})[0]
		text := strings.TrimPrefix(listed, "paused_groups=")

		err := c.Set("paused_groups", text)
		if err != nil || !reflect.DeepEqual(c.Settings.PausedGroups, names) {
			t.Errorf("%q is %s, then %q, %v", names, text, c.Settings.PausedGroups, err)
		}
	}

	for _, bad := range []struct{ name, value, words string }{
		{"paused_groups", "[a", "paused_groups: "},
		{"paused_groups", "a,", `a group ""`},
		{"ack_weight", "1m", `unknown setting "ack_weight": want one of ack_wait, backoff, `},
		{"ack_wait", "30", `"30": want a duration with a unit such as "30s"`},
		{"backoff", "1s,soon", "element 1"},
		{"backoff", "1,2", `"1": want a duration with a unit such as "30s" or "24h"`},
		{"max_items", "many", "integer"},
	} {
		var c subjects.Change
		err := c.Set(bad.name, bad.value)
		refused := errors.Is(err, subjects.ErrOptions) && strings.Contains(err.Error(), bad.words)
		refused = refused && !strings.Contains(err.Error(), "nanoseconds") // which are no text
		if !refused || string(c.Encode()) != "{}" {
			t.Errorf("%s=%s: %v and %s, want words %q",
				bad.name, bad.value, err, c.Encode(), bad.words)
		}
	}
}

// A dead letter is read from its headers. A header that cannot be read is absent and named in the
// error, and of several, each is named.
func TestDeadLetterHeaders(t *testing.T) {
	want := subjects.DeadLetter{
		Queue:      "jobs",
		Reason:     "no",
		At:         time.Unix(1, 5000).UTC(),
		Deliveries: 3,
		Error:      "late",
	}
	h := map[string][]string{}
	want.Headers(h)

	info, err := subjects.ParseItemHeaders(h)
	if err != nil || info.DeadLetter == nil || *info.DeadLetter != want || len(h) != 5 {
		t.Errorf("%v is read as %+v, %v", h, info.DeadLetter, err)
	}

	for _, name := range []string{subjects.HeaderDeadAt, subjects.HeaderDeadDeliveries} {
		bad := map[string][]string{}
		want.Headers(bad)
		bad[name] = []string{"soon"}

		_, err := subjects.ParseItemHeaders(bad)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v", bad, err)
		}

		var item subjects.ItemHeaders
		if err := item.Set(name, "soon"); err == nil || item != (subjects.ItemHeaders{}) {
			t.Errorf("%s: %+v, %v", name, item, err)
		}
	}

	several := map[string][]string{
		subjects.HeaderPriority:   {"x"},
		subjects.HeaderDeliveries: {"soon"},
		subjects.HeaderPushedAt:   {"now"},
	}

	_, err = subjects.ParseItemHeaders(several)
	if !errors.Is(err, subjects.ErrPriority) ||
		!strings.Contains(err.Error(), subjects.HeaderPushedAt) {
		t.Fatalf("%v: %v", several, err)
	}
}
