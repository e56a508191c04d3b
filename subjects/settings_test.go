package subjects_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

func pointer[T any](v T) *T { return &v }

func TestSettings(t *testing.T) {
	for payload, want := range map[string]subjects.Settings{
		`{}`: {},
		`{"ack_wait":"1m30s","backoff":["1s",2000000000,"0s"],"max_deliver":5,"dead_letter":"failed_jobs-2"}`: {
			AckWait: pointer(90 * time.Second), Backoff: []time.Duration{time.Second, 2 * time.Second, 0},
			MaxDeliver: pointer(5), DeadLetter: pointer("failed_jobs-2"),
		},
		`{"ack_wait":null,"backoff":null,"max_deliver":null,"dead_letter":null}`: {
			AckWait: pointer(time.Duration(0)), Backoff: []time.Duration{}, MaxDeliver: pointer(0), DeadLetter: pointer(""),
		},
		`{"ack_wait":0,"backoff":[],"max_deliver":0}`: {
			AckWait: pointer(time.Duration(0)), Backoff: []time.Duration{}, MaxDeliver: pointer(0),
		},
		`{"ttl":"24h"}`:           {TTL: pointer(24 * time.Hour)},
		`{"ttl":1000000000}`:      {TTL: pointer(time.Second)},
		`{"ttl":null}`:            {TTL: pointer(time.Duration(0))},
		`{"max_deliver":1000000}`: {MaxDeliver: pointer(1_000_000)},
	} {
		got, err := subjects.ParseSettings([]byte(payload))
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v: want %+v", payload, got, err, want)
		}
	}
	for payload, words := range map[string]string{
		``:                                     "not an object",
		`null`:                                 "not an object",
		`[]`:                                   "not an object",
		`{"max_deliver":1}{}`:                  "something after",
		`{"max_deliver":1,"max_deliver":null}`: "given twice",
		`{"ttl2":1}`:                           `unknown member "ttl2"`,
		`{"Ack_wait":"1s"}`:                    "unknown member",
		`{"ack_wait":"30"}`:                    "ack_wait: ",
		`{"ack_wait":"99ms"}`:                  "100ms to 12h",
		`{"ack_wait":"-1s"}`:                   "100ms to 12h",
		`{"ack_wait":"12h1s"}`:                 "100ms to 12h",
		`{"ack_wait":["1s"]}`:                  "want nanoseconds",
		`{"ttl":"999ms"}`:                      `ttl: "999ms": want 1s to 87600h`,
		`{"ttl":"87601h"}`:                     "1s to 87600h",
		`{"ttl":"never"}`:                      "ttl: ",
		`{"backoff":"1s"}`:                     `backoff: "1s": want an array`,
		`{"backoff":["1s","-1s"]}`:             "backoff: element 1",
		`{"backoff":[null]}`:                   "element 0",
		`{"backoff":["11y"]}`:                  "element 0",
		`{"backoff":["90000h"]}`:               "0s to 87600h",
		`{"backoff":[` + strings.Repeat("1,", 100) + `1]}`: "up to 100 durations",
		`{"max_deliver":-1}`:                                 "0 to 1000000",
		`{"max_deliver":1000001}`:                            "0 to 1000000",
		`{"max_deliver":1.5}`:                                "0 to 1000000",
		`{"max_deliver":"5"}`:                                "0 to 1000000",
		`{"dead_letter":""}`:                                 "is empty",
		`{"dead_letter":"a.b"}`:                              "letters, digits",
		`{"dead_letter":5}`:                                  "want a text in quotes",
		`{"dead_letter":"` + strings.Repeat("x", 129) + `"}`: "129 bytes",
	} {
		_, err := subjects.ParseSettings([]byte(payload))
		if !errors.Is(err, subjects.ErrOptions) || !strings.Contains(fmt.Sprint(err), words) {
			t.Errorf("%s: %v, want %q", payload, err, words)
		}
	}
}

// FuzzSettings: a change of settings is within the bounds and encodes to one that says the same, or is
// refused with an error that can be sent.
func FuzzSettings(f *testing.F) {
	f.Add([]byte(`{"ack_wait":"1m","backoff":["1s",5],"max_deliver":5,"dead_letter":"x"}`))
	f.Add([]byte(`{"ack_wait":null,"backoff":[],"max_deliver":null,"dead_letter":null}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		s, err := subjects.ParseSettings(payload)
		if err != nil {
			if !errors.Is(err, subjects.ErrOptions) || len(err.Error()) > 1000 || strings.Trim(err.Error(), printable) != "" {
				t.Errorf("%q: %v", payload, err)
			}
			return
		}
		if s.AckWait != nil && *s.AckWait != 0 && (*s.AckWait < subjects.MinAckWait || *s.AckWait > subjects.MaxAckWait) ||
			len(s.Backoff) > subjects.MaxBackoffs || s.MaxDeliver != nil && (*s.MaxDeliver < 0 || *s.MaxDeliver > subjects.MaxMaxDeliver) {
			t.Errorf("%q: %+v", payload, s)
		}
		for _, d := range s.Backoff {
			if d < 0 || d > subjects.MaxDelay {
				t.Errorf("%q: %+v", payload, s)
			}
		}
		if again, err := subjects.ParseSettings(s.Encode()); err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%q is %+v, encoded %s, then %+v, %v", payload, s, s.Encode(), again, err)
		}
	})
}

// What a bridge replies is read as it was, with or without members of a newer one.
func TestSettingsReply(t *testing.T) {
	s := &subjects.Settings{AckWait: pointer(time.Minute), Backoff: []time.Duration{time.Second}, MaxDeliver: pointer(3), DeadLetter: pointer("x")}
	reply := string(s.Encode())
	if want := `{"ack_wait":"1m0s","backoff":["1s"],"max_deliver":3,"dead_letter":"x"}`; reply != want {
		t.Errorf("encoded %s, want %s", reply, want)
	}
	got, err := subjects.ParseSettingsReply([]byte(`{"later":{},` + reply[1:]))
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%+v, %v: want %+v", got, err, s)
	}
	for _, bad := range []string{"", "5", `{"ack_wait":true}`} {
		if got, err := subjects.ParseSettingsReply([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

func TestDeadLetterHeaders(t *testing.T) {
	want := subjects.DeadLetter{Queue: "jobs", Reason: "no", At: time.Unix(1, 5000).UTC(), Deliveries: 3, Error: "late"}
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
		if _, err := subjects.ParseItemHeaders(bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
