package subjects_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// The options of a pop are read if they are within their bounds and have the options that they
// need beside them. Otherwise the error says what is wrong or would be right.
func TestPopOptions(t *testing.T) {
	for payload, want := range map[string]subjects.PopOptions{
		``:                       {},
		` {"batch": 1000 } `:     {Batch: 1000},
		`{"ack_wait":"1m30s"}`:   {Lease: true, AckWait: 90 * time.Second},
		`{"ack_wait":0}`:         {Lease: true},
		`{"ack_wait":100000000}`: {Lease: true, AckWait: 100 * time.Millisecond},
		`{"max_bytes":0,"no_wait":true,"batch":2,"ack_wait":"12h"}`: {
			Batch:   2,
			Lease:   true,
			AckWait: 12 * time.Hour,
			NoWait:  true,
		},
		`{"expires":"1h","idle_heartbeat":"100ms"}`: {
			Expires:       time.Hour,
			IdleHeartbeat: 100 * time.Millisecond,
		},
		`{"idle_heartbeat":"1h","expires":1000000}`: {
			Expires:       time.Millisecond,
			IdleHeartbeat: time.Hour,
		},
		`{"expires":0,"idle_heartbeat":"0s","no_wait":true}`: {NoWait: true},
		`{"frames":true,"batch":3}`:                          {Batch: 3, Frames: true},
		`{"expires":"5m","id":"Q7-_z"}`: {
			Expires: 5 * time.Minute,
			ID:      "Q7-_z",
		},
		`{"cancel":"Q7-_z"}`: {Cancel: "Q7-_z"},
	} {
		if got, err := subjects.ParsePopOptions([]byte(payload)); err != nil || got != want {
			t.Errorf("%s: %+v, %v: want %+v", payload, got, err, want)
		}
	}

	const (
		wantAlone = "want nothing else with it"
		wantID    = "want 1 to 64 letters"
	)
	for payload, words := range map[string]string{
		`null`: "null: want a JSON object with members of batch, ack_wait, ",
		`{`:    "not JSON",

		`{"batch":1}}`:                             "something comes after the object",
		`{"batch":1,"batch":1}`:                    "given twice",
		`{"Batch":1}`:                              "unknown member",
		`{"expires":null}`:                         "nanoseconds",
		`{"expires":"30"}`:                         "a duration with a unit",
		`{"expires":999999}`:                       "expires: 999.999us: want 1ms to 1h",
		`{"expires":"1h1ns"}`:                      "expires: 1h0m0.000000001s: want 1ms to 1h",
		`{"expires":0,"idle_heartbeat":"1s"}`:      "without expires",
		`{"expires":"1s","idle_heartbeat":"99ms"}`: "100ms to 1h",
		`{"frames":1}`:                             "frames: 1: want true or false",
		`{"id":"a"}`:                               "id without expires",
		`{"id":"a.b","expires":"1s"}`:              wantID,
		`{"cancel":1}`:                             wantID,
		`{"cancel":"a","batch":1}`:                 wantAlone,
		`{"cancel":"a","ack_wait":0}`:              wantAlone,
		`{"batch":0}`:                              "1 to 1000",
		`{"batch":1001}`:                           "1 to 1000",
		`{"batch":1.5}`:                            "batch: 1.5: want an integer",
		`{"batch":"1"}`:                            `batch: "1": want an integer`,
		`{"ack_wait":30}`:                          "100ms to 12h",
		`{"ack_wait":"13h"}`:                       "100ms to 12h",
		`{"ack_wait":"soon"}`:                      `ack_wait: "soon": want a duration with a unit`,
		`{"max_bytes":-1}`:                         "from 0",
		`{"no_wait":1}`:                            "true or false",
		"{\"\x00\":1}":                             "not JSON",

		`{"cancel":"` + strings.Repeat("a", 65) + `"}`: wantID,
	} {
		_, err := subjects.ParsePopOptions([]byte(payload))
		if !errors.Is(err, subjects.ErrOptions) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", payload, err, words)
		}
	}
}

// An acknowledgement is read from JetStream's payloads, and from objects with more in them. A bad
// one is refused with a short error that says what would be right.
func TestAck(t *testing.T) {
	most := `+ACK {"also":[` + strings.Repeat(`"t",`, subjects.MaxAlso-1) + `"t"]}`
	tooMany := strings.Replace(most, "[", `["u",`, 1)

	for payload, want := range map[string]subjects.Ack{
		"":     {},
		"+ACK": {},
		"-NAK": {Kind: subjects.AckNak},
		"-NAK 30s": {
			Kind:     subjects.AckNak,
			Delay:    30 * time.Second,
			HasDelay: true,
		},
		"-NAK 0s":          {Kind: subjects.AckNak, HasDelay: true},
		`-NAK {}`:          {Kind: subjects.AckNak},
		`-NAK {"delay":0}`: {Kind: subjects.AckNak, HasDelay: true},
		`-NAK {"delay":1000000000}`: {
			Kind:     subjects.AckNak,
			Delay:    time.Second,
			HasDelay: true,
		},
		`-NAK {"delay":"1s","snooze":true}`: {
			Kind:     subjects.AckNak,
			Delay:    time.Second,
			HasDelay: true,
			Snooze:   true,
		},
		`-NAK {"retry_delay":"1s","snooze":false}`: {
			Kind:       subjects.AckNak,
			RetryDelay: time.Second,
		},
		`-NAK {"retry_delay":0}`:           {Kind: subjects.AckNak},
		`-NAK {"reason":" disk\r\nfull "}`: {Kind: subjects.AckNak, Reason: "disk\r\nfull"},
		"+TERM":                            {Kind: subjects.AckTerm},
		"+TERM  ":                          {Kind: subjects.AckTerm},
		"+TERM no such user ":              {Kind: subjects.AckTerm, Reason: "no such user"},
		"+WPI":                             {Kind: subjects.AckProgress},
		"+NXT":                             {Kind: subjects.AckNext},
		`+NXT {"expires":"5s"}`: {
			Kind: subjects.AckNext,
			Next: subjects.PopOptions{Expires: 5 * time.Second},
		},
		"+NXT 5": {
			Kind: subjects.AckNext,
			Next: subjects.PopOptions{Batch: 5},
		},
		`+NXT {"batch":2}`: {
			Kind: subjects.AckNext,
			Next: subjects.PopOptions{Batch: 2},
		},
		`+ACK {}`:                        {},
		`+ACK {"also":[]}`:               {Also: []string{}},
		`+ACK {"also":["a-","_\u0062"]}`: {Also: []string{"a-", "_b"}},
		`+NXT {"also":["a"],"batch":2}`: {
			Kind: subjects.AckNext,
			Next: subjects.PopOptions{Batch: 2},
			Also: []string{"a"},
		},
		most: {Also: slices.Repeat([]string{"t"}, subjects.MaxAlso)},
	} {
		got, err := subjects.ParseAck([]byte(payload))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v: want %+v", payload, got, err, want)
		}
	}

	const mostError = 600 // bytes, so that it fits into a header
	for _, payload := range []string{
		"ack", "+ack", "+ACK now", "+ACK ", "-NAK 30", "-NAK soon", "-NAK -1s", `-NAK {"delay":-1}`,
		`-NAK {"other":1}`, `-NAK {"reason":5}`, `-NAK {"reason":null}`, "+TERMinate", "-NAK 11y",
		"+WPI 5", "+NXT 0", "+NXT -1", "+NXT 1001", "+NXT x", `+NXT {"expires":1}`,
		`+NXT {"idle_heartbeat":"1s"}`, "\x00", " ", strings.Repeat("x", 1000), "+ACK [",
		`+ACK {"also":["a"]`, `+ACK {"also":["a"],"also":["b"]}`, `-NAK {"also":["a"]}`,
		`+ACK {"batch":2}`, `+NXT {"Also":["a"]}`,
	} {
		_, err := subjects.ParseAck([]byte(payload))
		if !errors.Is(err, subjects.ErrOptions) || len(err.Error()) > mostError {
			t.Errorf("%q: %v", payload, err)
		}
	}

	for payload, words := range map[string]string{
		"-NAK 30":                              `-NAK "30": want a duration with a unit`,
		"-NAK 87601h":                          "from 0s to 87600h",
		" ":                                    `" ": want nothing, +ACK`,
		`-NAK {"retry_delay":"87601h"}`:        "retry_delay: 87601h0m0s: want 0s to 87600h0m0s",
		`-NAK {"retry_delay":0,"delay":0}`:     "retry_delay with delay or snooze: want only one",
		`-NAK {"retry_delay":1,"snooze":true}`: "retry_delay with delay or snooze: want only one",
		`+ACK {"also":null}`:                   "also: null: want a value",
		`+ACK {"also":"a"}`:                    "want an array",
		`+NXT {"also":["a",5]}`:                "also: element 1: 5: want a string in quotes",
		`+ACK {"max_bytes":1}`:                 "want a JSON object with members of also",

		"+ACK now": `want nothing after +ACK, or a JSON object such as {"also"`,
		tooMany:    "also: an array of 1000 elements: want at most 999",
	} {
		_, err := subjects.ParseAck([]byte(payload))
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v: want %q", payload, err, words)
		}
	}
}

// Options that are accepted are within their bounds and read again as they are written; the others
// are refused with an error that fits into a header.
func FuzzOptions(f *testing.F) {
	for _, payload := range []string{
		"", `{"batch":1}`, "-NAK 5s", `-NAK {"delay":1}`, `-NAK {"retry_delay":1}`, "+NXT 4",
		`{"ack_wait":"1s","no_wait":false}`,
		`{"expires":"30s","idle_heartbeat":"5s","no_wait":true}`, `+NXT {"expires":1000000}`,
		`{"batch":9,"frames":true}`, `{"expires":"1h","id":"a"}`, `{"cancel":"a"}`,
		`+NXT {"cancel":"a"}`, `+NXT {"frames":true,"batch":2}`, `+ACK {"also":["AQ-_"]}`,
		`+NXT {"also":["a","b"],"batch":2}`,
	} {
		f.Add([]byte(payload))
	}

	f.Fuzz(func(t *testing.T, payload []byte) {
		if o, err := subjects.ParsePopOptions(payload); err != nil {
			subjects.WantSendable(t, err, subjects.ErrOptions)
		} else {
			checkPop(t, payload, o)
		}

		if a, err := subjects.ParseAck(payload); err != nil {
			subjects.WantSendable(t, err, subjects.ErrOptions)
		} else {
			checkAck(t, payload, a)
		}
	})
}

// checkPop checks that what was read from a payload is within the bounds and is read again.
func checkPop(t *testing.T, payload []byte, o subjects.PopOptions) {
	t.Helper()
	between := func(d, least, most time.Duration) bool { return d == 0 || least <= d && d <= most }
	if o.Batch < 0 || o.Batch > subjects.MaxPopBatch || o.MaxBytes < 0 ||
		!between(o.AckWait, settings.MinLease, settings.MaxLease) ||
		!between(o.Expires, subjects.MinExpires, subjects.MaxExpires) ||
		!between(o.IdleHeartbeat, subjects.MinIdleHeartbeat, subjects.MaxExpires) ||
		o.IdleHeartbeat != 0 && o.Expires == 0 {
		t.Errorf("%q: %+v", payload, o)
	}

	if again, err := subjects.ParsePopOptions(o.Encode()); err != nil || again != o {
		t.Errorf("%q: %+v, encoded and parsed again %+v, %v", payload, o, again, err)
	}
}

// checkAck is checkPop for an acknowledgement.
func checkAck(t *testing.T, payload []byte, a subjects.Ack) {
	t.Helper()
	if a.Delay < 0 || a.Delay > settings.MaxDelay ||
		a.RetryDelay < 0 || a.RetryDelay > settings.MaxDelay || len(a.Also) > subjects.MaxAlso {
		t.Errorf("%q: %+v", payload, a)
	}
	if len(a.Also) == 0 {
		a.Also = nil // as it is without the member
	}

	again, err := subjects.ParseAck(a.Encode())
	if err != nil || !reflect.DeepEqual(again, a) {
		t.Errorf("%q: %+v, encoded and parsed again %+v, %v", payload, a, again, err)
	}
}
