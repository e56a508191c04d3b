package clients_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/pqbridge/pqbridge/testenv"
)

// values has what jobs carry, and how large and odd it can be.
var values = []scenario{
	{"max_payload", maxPayload},
	{"values above 128 KiB", largeValues},
	{"unicode and binary", unicodeAndBinary},
	{"repeated and odd headers", oddHeaders},
	{"line breaks in headers", lineBreaks},
	{"priorities beyond 2^53", largePriorities},
}

// A message may be as large as max_payload, headers included. One byte more is too large, and does
// not cost the connection.
func maxPayload(s *story) {
	const limit = 64 << 10
	s.begin(testenv.Options{NATS: func(o *server.Options) { o.MaxPayload = limit }})
	d := s.driver()
	const headers = "NATS/1.0\r\nNats-Msg-Id: 1\r\nPq-Priority: 5\r\n\r\n"
	push := func(id string, more int) in {
		value := strings.Repeat("x", limit-len(headers)+more)
		return in{"msgId": id, "priority": "5", "value": b64(value)}
	}

	d.pushes("job1", push("1", -1))
	d.pushes("job2", push("2", 0))
	d.refuses("push", push("3", 1), "TooLarge")
	d.refuses("push", push("4", 100_000), "TooLarge")
	d.answers("pushMany", in{"items": []in{{}, push("5", 100_000), {}}},
		`[{"id":"job3","duplicate":false},{"error":"TooLarge"},{"error":"NotSent"}]`)
	d.pushes("job4", nil)
	s.holds("jobs", "job3 0 ready 0", "job4 0 ready 0", "job1 5 ready 0", "job2 5 ready 0")
}

// A value above 128 KiB arrives whole, alone and among others.
func largeValues(s *story) {
	d := s.driver()
	large := b64(strings.Repeat("0123456789abcdef", 20_000))
	for n := range 5 {
		value := large
		if n == 2 {
			value = ""
		}
		d.pushes(fmt.Sprint("job", n+1), in{"value": value, "headers": [][]string{}})
	}
	d.answers("pushMany", in{"items": []in{{"value": large}, {"value": "YQ=="}, {"value": large}}},
		`[{"id":"job6","duplicate":false},{"id":"job7","duplicate":false},`+
			`{"id":"job8","duplicate":false}]`)

	d.answers("pop", nil, item("job1", "0", large))
	d.answers("lease", nil, leased(item("job2", "0", large), "1"))
	d.answers("settle", in{"lease": "1", "how": "snooze", "delay": "1h"}, `null`)
	d.answers("pop", in{"count": "10"}, `[`+item("job3", "0", "")+`,`+item("job4", "0", large)+`,`+
		item("job5", "0", large)+`,`+item("job6", "0", large)+`,`+item("job7", "0", "YQ==")+`,`+
		item("job8", "0", large)+`]`)
}

// Texts are UTF-8, and values any bytes.
func unicodeAndBinary(s *story) {
	d := s.driver()
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}

	d.pushes("job1", in{
		"value":   b64(string(all[:])),
		"group":   "Müller & Söhne",
		"msgId":   "Rechnung 17 ✓",
		"headers": [][]string{{"X-Name", "Zoë 🙂"}, {"X-Empty", ""}},
		"type":    "größer",
	})
	want := `{"id":"job1","priority":"0","value":"` + b64(string(all[:])) + `","headers":[` +
		`["Type","größer"],["X-Empty",""],["X-Name","Zoë 🙂"]],"group":"Müller & Söhne"`
	d.answers("pop", in{"peek": true}, want+`}`)
	d.answers("look", in{"what": "get", "id": "job1"}, want+`,"state":"ready"}`)
	d.answers("lease", nil, want+`,"deliveries":"1"}`)
	reason := "Drucker ✗\r\n\"quoted\""
	d.answers("settle", in{"lease": "1", "how": "nak", "reason": reason}, `null`)
	s.holds("jobs", `job1 0 ready 1 Drucker ✗  "quoted"`)
	d.answers("pop", in{"count": "1"}, `[`+want+`}]`)

	d.answers("pushMany", in{"items": []in{{
		"value":   b64(string(all[:])),
		"group":   "Müller & Söhne",
		"headers": [][]string{{"X-Name", "Zoë 🙂"}, {"X-Empty", ""}},
		"type":    "größer",
	}}}, `[{"id":"job2","duplicate":false}]`)
	d.answers("pop", nil, strings.Replace(want, "job1", "job2", 1)+`}`)

	d.answers("work", in{"types": []string{"größer"}}, `null`)
	returns := do(step{"return", b64(string(all[:]))})
	d.pushes("job3", in{"type": "größer", "keep": "1h", "value": returns})
	d.hears("start job3 1 type größer handler größer", "end job3 done")
	d.answers("result", in{"id": "job3", "wait": "1m"}, done(b64(string(all[:]))))
}

// Headers that are repeated, or not UTF-8, arrive as they are in frames: in batches.
func oddHeaders(s *story) {
	d := s.driver()
	headers := []any{
		[]any{"X-Odd", map[string]string{"base64": "/wD+"}},
		[]string{"X-Tag", "b"}, []string{"X-Tag", "a"}, []string{"x-tag", "c"},
	}
	text := string(must(json.Marshal(headers)))

	withHeaders := func(job string) string {
		return strings.Replace(item(job, "0", ""), `"headers":[]`, `"headers":`+text, 1)
	}

	items := []in{{"headers": headers}}
	d.answers("pushMany", in{"items": items}, `[{"id":"job1","duplicate":false}]`)
	d.answers("pop", in{"count": "2"}, `[`+withHeaders("job1")+`]`)

	// Alone, they are stored whole or refused, as the library of the language has it.
	switch is := d.ask("push", in{"headers": headers}).answer(); {
	case is.Error == nil:
		d.answers("pop", in{"count": "2"}, `[`+withHeaders("job2")+`]`)
	case is.Error.String() != "BadRequest":
		s.Fatalf("%s: repeated headers: %s (%s)", d.name, is.Error, is.Error.Text)
	}
	s.holds("jobs")
}

// No text that becomes a header can add another one.
func lineBreaks(s *story) {
	d := s.driver()
	const evil = "a\r\nX-Evil: 1"
	for _, push := range []in{
		{"headers": [][]string{{"X-Tag", evil}}},
		{"headers": [][]string{{"X-Tag", "a\nb"}}},
		{"headers": [][]string{{"X-Tag\r\nX-Evil", "1"}}},
		{"headers": [][]string{{"X Tag", "1"}}},
		{"headers": [][]string{{"", "1"}}},
		{"headers": [][]string{{"Pq-Delay ", "1s"}}},
		{"headers": [][]string{{"Pq-Own", "1"}}},
		{"msgId": evil},
		{"unique": evil},
		{"group": evil},
		{"type": evil},
	} {
		d.refuses("push", push, "BadRequest")
		d.answers("pushMany", in{"items": []in{push}}, `[{"error":"BadRequest"}]`)
	}
	s.holds("jobs")
}

// Priorities are exact, up to the ends of int64.
func largePriorities(s *story) {
	d := s.driver()
	const beyond, least, most = "9007199254740993", "-9223372036854775808", "9223372036854775807"
	d.pushes("job1", in{"priority": beyond})
	d.pushes("job2", in{"priority": least})
	d.pushes("job3", in{"priority": most})
	d.answers("pushMany", in{"items": []in{{"priority": "-9007199254740993"}}},
		`[{"id":"job4","duplicate":false}]`)
	s.holds("jobs", "job2 "+least+" ready 0", "job4 -9007199254740993 ready 0",
		"job1 "+beyond+" ready 0", "job3 "+most+" ready 0")

	d.answers("pop", in{"peek": true, "max": true}, item("job3", most, ""))
	d.answers("pop", nil, item("job2", least, ""))
	d.answers("pop", in{"count": "1"}, `[`+item("job4", "-9007199254740993", "")+`]`)
	d.answers("look", in{"what": "items"}, `[`+listed("job1", beyond)+`,`+listed("job3", most)+`]`)
	d.answers("look", in{"what": "info"}, `{"queue":"jobs","ready":"2","leased":"0","delayed":"0",`+
		`"priorities":{"`+beyond+`":"1","`+most+`":"1"},"settings":{}}`)

	d.answers("manage", in{"what": "move", "id": "job3", "priority": beyond}, `{"place":"place1"}`)
	s.holds("jobs", "job1 "+beyond+" ready 0", "job3 "+beyond+" ready 0")
	d.answers("lease", nil, leased(item("job1", beyond, ""), "1"))
	d.answers("settle", in{"lease": "1", "how": "snooze", "delay": "1h"}, `null`)
}
