package subjects_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/schedule"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// escaped returns JSON of n bytes of text in the longest form: each is written as six.
func escaped(n int, text string) string {
	return `"` + strings.Repeat(fmt.Sprintf(`\u%04x`, text[0]), n) + `"`
}

// numbered is escaped for texts that differ.
func numbered(n, i int) string { return escaped(n-3, "<")[:6*(n-3)+1] + fmt.Sprintf(`%03d"`, i) }

// listed returns the elements of an array or the members of an object, each in a line of its own.
func listed(n int, element func(i int) string) string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = "\n        " + element(i)
	}
	return strings.Join(lines, ",")
}

// longestID returns the JSON of the i-th of the ids that have the longest texts.
func longestID(i int) string {
	id := fdbpq.ID{Priority: -1 << 63, Count: 1<<63 - 1}
	id.Random[0], id.Random[1] = byte(i), byte(i>>8)
	return `"` + id.String() + `"`
}

// longestToken returns the JSON of the i-th of the tokens that have the longest texts.
func longestToken(i int) string {
	token := fdbpq.Token{ID: fdbpq.ID{Priority: -1 << 63, Count: 1<<63 - 1}, Fence: 1<<63 - 1}
	token.ID.Random[0], token.ID.Random[1] = byte(i), byte(i>>8)
	return `"` + token.String() + `"`
}

// parser reads the payload of a verb.
type parser = func(payload string) error

func parserOf(v subjects.Verb) parser {
	return func(payload string) (err error) {
		switch b := []byte(payload); v {
		case subjects.Pop, subjects.PopMax:
			_, err = subjects.ParsePopOptions(b)
		case subjects.Peek, subjects.PeekMax:
			_, err = subjects.ParsePeekOptions(b)
		case subjects.AckLease:
			_, err = subjects.ParseAck(b)
		case subjects.Config:
			_, err = subjects.ParseChange(b)
		case subjects.Items:
			_, err = subjects.ParseItemsOptions(b)
		case subjects.Schedule:
			_, err = subjects.ParseScheduleChange(b)
		case subjects.Unschedule:
			_, err = subjects.ParseUnschedule(b)
		case subjects.Purge:
			_, err = subjects.ParsePurge(b)
		case subjects.Result:
			_, err = subjects.ParseResultOptions(b)
		case subjects.List, subjects.Schedules:
			_, err = subjects.ParseListOptions(b)
		default:
			_, err = subjects.ParseItemOptions(v, b)
		}
		return err
	}
}

// largestPayloads has the largest payload that the documents allow for each verb that takes one.
func largestPayloads() map[subjects.Verb]string {
	const options = `"batch": 1000, "ack_wait": "11h59m59.999999999s", "max_bytes": 1099511627776,
		"expires": "59m59.999999999s", "idle_heartbeat": "59m59.999999999s", "no_wait": true,
		"frames": true, "id": `
	pop := options + escaped(64, "a") + `, "holder": ` + escaped(settings.MaxHolder, "<")
	ids := `"ids": [` + listed(subjects.MaxItems, longestID) + "\n]"
	also := `"also": [` + listed(subjects.MaxAlso, longestToken) + "\n]"
	list := `{"after": ` + escaped(128, "a") + `, "limit": 1000}`

	groups := listed(settings.MaxPausedGroups, func(i int) string {
		return numbered(settings.MaxGroup, i)
	})
	next := listed(settings.MaxNext, func(i int) string {
		name := escaped(settings.MaxQueueName-2, "a")
		return name[:len(name)-1] + fmt.Sprintf(`%02d"`, i)
	})
	source := `{"stream": "S", "filter": "` + strings.Repeat("x", 1950) + `", "when_full": "wait"}`
	config := `{"ack_wait": "11h59m59.999999999s", "backoff": [` +
		listed(settings.MaxBackoffs, func(int) string { return `"87599h59m59.999999999s"` }) + `],
		"max_deliver": 1000000, "dead_letter": ` + escaped(128, "a") + `,
		"ttl": "87599h59m59.999999999s", "pause_until": "2030-01-31T12:00:00.123456789+12:00",
		"max_leased": 1000000000, "max_items": 1000000000, "max_bytes": 1125899906842624,
		"discard": "old", "duplicate_window": "87599h59m59.999999999s",
		"max_leased_per_group": 1000000000, "rate": "1000000/23h59m59.999999999s",
		"rate_per_group": "1000000/23h59m59.999999999s",
		"source": ` + source + `, "paused_groups": [` + groups + `],
		"keep": "87599h59m59.999999999s", "keep_items": 1000000000,
		"next": [` + next + `]}`

	headers := listed(subjects.MaxMatchHeaders, func(i int) string {
		return numbered(subjects.MaxMatch, i) + ": " + escaped(subjects.MaxMatch, "<")
	})
	items := `{"state": "delayed", "end": "max", "after": ` + longestID(0) + `, "limit": 1000,
		"value_bytes": 65536, "match": ` + escaped(subjects.MaxMatch, "<") +
		`, "headers": {` + headers + "}}"

	set := `{"id": ` + escaped(128, "<") + `, "cron": "` + strings.Repeat(" ", schedule.MaxCron-9) +
		`0 3 * * *", "zone": "America/Argentina/ComodRivadavia", "priority": -9223372036854775808,
		"headers": {"A": [` + escaped(schedule.MaxContent-1, "<") +
		`]}, "jitter": "59m59.999999999s",
		"if_missed": "once", "overlap": "allow", "until": "2030-01-31T12:00:00.123456789+12:00",
		"paused": false}`

	return map[subjects.Verb]string{
		subjects.Pop:      "{" + pop + "}",
		subjects.PopMax:   "{" + pop + "}",
		subjects.Peek:     `{"frames": true}`,
		subjects.PeekMax:  `{"frames": true}`,
		subjects.AckLease: "+NXT {" + pop + ", " + also + "}",
		subjects.Config:   config,
		subjects.Items:    items,
		subjects.Schedule: set,
		subjects.Get:      "{" + ids + `, "value_bytes": 65536, "frames": true}`,
		subjects.Move:     "{" + ids + `, "priority": -9223372036854775808}`,
		subjects.Remove:   "{" + ids + `, "state": "delayed"}`,
		subjects.Release:  "{" + ids + "}",
		subjects.Redrive:  "{" + ids + "}",
		subjects.Rank:     `{"id": ` + longestID(0) + `, "end": "max"}`,
		subjects.Result: `{"expires": "59m59.999999999s", "frames": true, "msg_id": ` +
			escaped(subjects.MaxKey, "<") + "}",
		subjects.Unschedule: `{"id": ` + escaped(128, "<") + "}",
		subjects.Purge:      `{"state": "delayed"}`,
		subjects.List:       list,
		subjects.Schedules:  list,
	}
}

// The largest request that the documents allow for a verb is read, however it is written.
func TestLargestPayloads(t *testing.T) {
	largest := largestPayloads()
	grammar, err := subjects.New("pq", "q")
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range grammar.Endpoints() {
		payload, documented := largest[e.Verb]
		if !documented {
			continue // see TestPayloadsAreDocumented
		}

		if most := e.Verb.MostPayload(); len(payload) > most {
			t.Errorf("%s: the largest payload has %d bytes, and %d are read",
				e.Verb, len(payload), most)
		}
		if err := parserOf(e.Verb)(payload); err != nil {
			t.Errorf("%s: %.300v", e.Verb, err)
		}
	}
}

// Each verb that reads options has a largest payload.
func TestPayloadsAreDocumented(t *testing.T) {
	largest := largestPayloads()
	for v := subjects.Push; v <= subjects.Result; v++ {
		most := v.MostPayload()
		reads := 0 < most && most < math.MaxInt // not none, and not a value
		if _, documented := largest[v]; reads && !documented {
			t.Errorf("%s: payloads of %d bytes are read, and none is known", v, most)
		}
	}
}

// Refusing the largest payload takes little work, and the error does not repeat the payload.
func TestJunkIsCheap(t *testing.T) {
	fill := func(v subjects.Verb, begin, member, end string) string {
		most := v.MostPayload()
		if v == subjects.AckLease {
			most = 1 << 20
		}

		var b strings.Builder
		b.WriteString(begin)
		for i := 0; b.Len() < most-len(end)-40; i++ {
			fmt.Fprintf(&b, member+",", i)
		}
		return strings.TrimSuffix(b.String(), ",") + end
	}

	for _, test := range []struct {
		verb               subjects.Verb
		begin, member, end string
		most               float64 // allocations
	}{
		{subjects.Config, "{", `"%d":0`, "}", 6000},
		{subjects.Config, `{"paused_groups":{`, `"%d":true`, "}}", 15_000},
		{subjects.Config, `{"backoff":[`, `%d`, "]}", 100},
		{subjects.Items, `{"headers":{`, `"%d":""`, "}}", 6000},
		{subjects.Schedule, `{"id":"x","cron":"@daily","headers":{`, `"%d":[]`, "}}", 6000},
		{subjects.Schedule, `{"id":"x","cron":"`, `%d`, `"}`, 100},
		{subjects.Schedule, `{"id":"x","cron":"@daily","zone":"`, `%d`, `"}`, 100},
		{subjects.Schedule, `{`, `"%d":[]`, `}`, 100},
		{subjects.Get, `{"ids":[`, `"%d"`, `]}`, 15_000},
		{subjects.AckLease, `+ACK {"also":[`, `"%d"`, `]}`, 100},
		{subjects.AckLease, `+NXT {"batch":[`, `%d`, `]}`, 100},
		{subjects.AckLease, `-NAK {"delay":[`, `%d`, `]}`, 200},
		{subjects.Pop, `{"batch":[`, `%d`, `]}`, 200},
	} {
		payload, parse := fill(test.verb, test.begin, test.member, test.end), parserOf(test.verb)

		var err error
		allocated := testing.AllocsPerRun(1, func() { err = parse(payload) })

		if err == nil || len(err.Error()) > 1000 {
			t.Errorf("%s %.30s: %.2000v", test.verb, payload, err)
		}
		if allocated > test.most {
			t.Errorf("%s %.30s: %v allocations for %d bytes, want at most %v",
				test.verb, payload, allocated, len(payload), test.most)
		}
	}
}

// A reason may have any length: it is cut later.
func TestLongReasons(t *testing.T) {
	long := strings.Repeat("trace ", 100_000)
	for _, payload := range []string{"+TERM " + long, `-NAK {"reason":"` + long + `"}`} {
		a, err := subjects.ParseAck([]byte(payload))
		if want := strings.TrimSpace(long); err != nil || a.Reason != want {
			t.Errorf("%.10s: a reason of %d bytes, %v; want %d",
				payload, len(a.Reason), err, len(want))
		}
	}
}
