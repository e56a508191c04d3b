package subjects_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// Deeply nested values are refused before they are read, which would take the square of the depth.
func TestNestedTooDeep(t *testing.T) {
	for name, payload := range map[string]string{
		"open": strings.Repeat(`{"a":`, 14_000),
		"in a member": `{"source":` + strings.Repeat(`{"a":`, 10_000) +
			strings.Repeat("}", 10_001),
		"arrays":       `{"source":` + strings.Repeat("[", 17),
		"after a text": `{"a":"\\\"[{","b":` + strings.Repeat("[", 17),
	} {
		_, err := subjects.ParseChange([]byte(payload))
		if err == nil || !strings.Contains(err.Error(), "nested more than 16 deep") {
			t.Errorf("%s: %v", name, err)
		}
	}

	// Brackets in a text count as nothing.
	payload := `{"dead_letter":"` + strings.Repeat("[", 100) + `"}`
	_, err := subjects.ParseChange([]byte(payload))
	if err != nil && strings.Contains(err.Error(), "nested") {
		t.Error(err)
	}
}

// Texts of times are refused by their length before they are read.
func TestLongTimes(t *testing.T) {
	long := strings.Repeat("1ns", 330_000)
	for name, read := range map[string]func() error{
		"delay": func() error { _, err := subjects.ParseDelay(long); return err },
		"ttl":   func() error { _, err := subjects.ParseTTL(long); return err },
		"schedule": func() error {
			_, err := subjects.ParseSchedule("@at "+long, time.Now())
			return err
		},
		"nak": func() error { _, err := subjects.ParseAck([]byte("-NAK " + long)); return err },
		"nak object": func() error {
			_, err := subjects.ParseAck([]byte(`-NAK {"delay":"` + long + `"}`))
			return err
		},
	} {
		if err := read(); err == nil || len(err.Error()) > 1000 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An object of a client or an operator has only known names, spelled exactly, each once; so do the
// objects inside.
func TestNamesAreExact(t *testing.T) {
	type parse = func([]byte) error
	items := func(v subjects.Verb) parse {
		return func(b []byte) error { _, err := subjects.ParseItemOptions(v, b); return err }
	}
	ack := func(b []byte) error { _, err := subjects.ParseAck(b); return err }
	pop := func(b []byte) error { _, err := subjects.ParsePopOptions(b); return err }
	peek := func(b []byte) error { _, err := subjects.ParsePeekOptions(b); return err }
	change := func(b []byte) error { _, err := subjects.ParseChange(b); return err }
	schedule := func(b []byte) error { _, err := subjects.ParseScheduleChange(b); return err }
	page := func(b []byte) error { _, err := subjects.ParseItemsOptions(b); return err }
	purge := func(b []byte) error { _, err := subjects.ParsePurge(b); return err }
	list := func(b []byte) error { _, err := subjects.ParseListOptions(b); return err }
	unschedule := func(b []byte) error { _, err := subjects.ParseUnschedule(b); return err }
	source := func(b []byte) error { _, err := settings.ParseSource(string(b)); return err }

	const (
		everyOption = `{"batch":2,"ack_wait":"1s","max_bytes":9,"expires":"1s",` +
			`"idle_heartbeat":"1s","no_wait":true,"frames":true,"id":"a"}`
		everyFilter = `{"state":"ready","end":"min","after":"a","limit":1,"value_bytes":1,` +
			`"match":"m","headers":{"A":"b"}}`
		everyTime = `{"id":"a","cron":"@daily","zone":"UTC","priority":1,"value":"aGk=",` +
			`"headers":{"A":["b"]},"jitter":"1s","if_missed":"all","overlap":"skip",` +
			`"until":"2030-01-01T00:00:00Z","paused":false}`
		everySource = `{"stream":"S","domain":"D","filter":"a.>","priority":{"token":1},` +
			`"group":{"header":"H"},"start":"all","on_bad":"stop","when_full":"wait"}`
	)

	for _, test := range []struct {
		prefix, object string
		parse          parse
	}{
		{"", everyOption, pop},
		{"", `{"cancel":"a"}`, pop},
		{"", `{"frames":true}`, peek},
		{"+ACK ", `{"also":["a"]}`, ack},
		{"+NXT ", `{"also":["a"],"batch":2}`, ack},
		{"-NAK ", `{"delay":"1s","snooze":true,"reason":"r"}`, ack},
		{"", everyFilter, page},
		{"", `{"ids":["a"],"value_bytes":1,"frames":true}`, items(subjects.Get)},
		{"", `{"id":"a"}`, items(subjects.Remove)},
		{"", `{"id":"a","end":"max"}`, items(subjects.Rank)},
		{"", `{"ids":["a"],"priority":1}`, items(subjects.Move)},
		{"", `{"ids":["a"]}`, items(subjects.Release)},
		{"", `{"max":1}`, items(subjects.Redrive)},
		{"", `{"state":"ready"}`, purge},
		{"", `{"after":"a","limit":1}`, list},
		{"", all[:len(all)-1] + `,"source":` + everySource + `}`, change},
		{"", everyTime, schedule},
		{"", `{"id":"a","every":"1m"}`, schedule},
		{"", `{"id":"a","run":true}`, schedule},
		{"", `{"id":"a"}`, unschedule},
		{"", everySource, source},
		{"", `{"stream":"S","priority":5,"start":7}`, source},
	} {
		if err := test.parse([]byte(test.prefix + test.object)); err != nil {
			t.Errorf("%s: %v", test.object, err)
		}

		for _, wrong := range mangled(test.object) {
			err := test.parse([]byte(test.prefix + wrong))
			if err == nil || !strings.Contains(err.Error(), "want ") {
				t.Errorf("%s: %v", wrong, err)
				continue
			}
			for _, word := range []string{"Go ", "json", "subjects."} {
				if strings.Contains(err.Error(), word) {
					t.Errorf("%s: the error has words of Go: %v", wrong, err)
				}
			}
		}
	}
}

// A request takes every member that its errors list.
func TestListedMembers(t *testing.T) {
	parses := map[string]func([]byte) error{
		"pop":  func(b []byte) error { _, err := subjects.ParsePopOptions(b); return err },
		"peek": func(b []byte) error { _, err := subjects.ParsePeekOptions(b); return err },
		"next": func(b []byte) error {
			_, err := subjects.ParseAck(append([]byte("+NXT "), b...))
			return err
		},
		"result": func(b []byte) error { _, err := subjects.ParseResultOptions(b); return err },
	}
	for _, v := range []subjects.Verb{
		subjects.Get, subjects.Rank, subjects.Remove, subjects.Move, subjects.Release,
		subjects.Redrive,
	} {
		parses[v.String()] = func(b []byte) error {
			_, err := subjects.ParseItemOptions(v, b)
			return err
		}
	}

	for name, parse := range parses {
		err := parse([]byte(`{"heard_of":1}`))
		_, list, found := strings.Cut(fmt.Sprint(err), "members of ")
		if !found {
			t.Errorf("%s: %v: want a list of its members", name, err)
		}

		for member := range strings.SplitSeq(list, ", ") {
			values := []string{`1`, `"a"`, `"max"`, `"ready"`, `["a"]`, `"1s"`, `true`}
			for _, value := range values {
				err := parse([]byte(`{"` + member + `":` + value + `}`))
				refused := err != nil && (strings.Contains(err.Error(), "unknown member") ||
					strings.Contains(err.Error(), "something else"))
				if refused {
					t.Errorf("%s: %v: want the member not listed", name, err)
				}
			}
		}
	}
}

// mangled returns an object with each of its names in another case, given twice, in two cases, and
// of null or another type, and with a name that is not known.
func mangled(object string) (list []string) {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(object), &members) != nil || members == nil {
		return nil
	}

	list = append(list, object[:len(object)-1]+`,"heard_of":1}`, object+"{}", object[1:])
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := string(members[name])
		member := `"` + name + `":` + value
		with := func(other string) {
			list = append(list, strings.Replace(object, member, other, 1))
		}
		title := strings.ToUpper(name[:1]) + name[1:]
		if name[:1] != title[:1] { // not a header
			with(`"` + title + `":` + value)
			with(member + `,"` + title + `":` + value)
			with(`"` + strings.ToUpper(name) + `":` + value)
		}

		with(member + "," + member)
		with(`"` + name + `":[{}]`)
		if !strings.Contains(object, `"ttl"`) { // null resets a setting
			with(`"` + name + `":null`)
		}
		for _, inner := range mangled(value) {
			with(`"` + name + `":` + inner)
		}
	}
	return list
}
