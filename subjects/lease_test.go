package subjects_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

func TestEncodePopOptions(t *testing.T) {
	for want, o := range map[string]subjects.PopOptions{
		`{"expires":"5m0s","id":"Q7"}`: {Expires: 5 * time.Minute, ID: "Q7"},
		`{"cancel":"Q7"}`:              {Cancel: "Q7"},
		``:                             {},
		`{"batch":7}`:                  {Batch: 7},
		`{"ack_wait":"0s"}`:            {Lease: true},
		`{"ack_wait":"1m30s"}`:         {Lease: true, AckWait: 90 * time.Second},
		`{"batch":2,"ack_wait":"100ms","max_bytes":9,"no_wait":true}`: {
			Batch: 2, Lease: true, AckWait: subjects.MinAckWait, MaxBytes: 9, NoWait: true,
		},
		`{"batch":2,"expires":"1ms","idle_heartbeat":"100ms","no_wait":true}`: {
			Batch: 2, Expires: subjects.MinExpires, IdleHeartbeat: subjects.MinIdleHeartbeat, NoWait: true,
		},
		`{"batch":2,"frames":true}`: {Batch: 2, Frames: true},
	} {
		if got := string(o.Encode()); got != want {
			t.Errorf("%+v: encoded to %s, want %s", o, got, want)
		}
		if got, err := subjects.ParsePopOptions([]byte(want)); err != nil || got != o {
			t.Errorf("%s: parsed to %+v, %v, want %+v", want, got, err, o)
		}
	}
}

func TestEncodeAck(t *testing.T) {
	for want, a := range map[string]subjects.Ack{
		`+ACK`:                               {},
		`-NAK`:                               {Kind: subjects.AckNak},
		`-NAK {"delay":"5ms"}`:               {Kind: subjects.AckNak, Delay: 5 * time.Millisecond, HasDelay: true},
		`-NAK {"delay":"0s","snooze":true}`:  {Kind: subjects.AckNak, HasDelay: true, Snooze: true},
		`-NAK {"reason":"\"no\""}`:           {Kind: subjects.AckNak, Reason: `"no"`},
		`+TERM`:                              {Kind: subjects.AckTerm},
		`+TERM no`:                           {Kind: subjects.AckTerm, Reason: "no"},
		`-NAK {"delay":"1ns","snooze":true}`: {Kind: subjects.AckNak, Delay: 1, HasDelay: true, Snooze: true},
		`+WPI`:                               {Kind: subjects.AckProgress},
		`+NXT`:                               {Kind: subjects.AckNext},
		`+NXT {"batch":3,"max_bytes":100}`:   {Kind: subjects.AckNext, Next: subjects.PopOptions{Batch: 3, MaxBytes: 100}},
		`+NXT {"expires":"1h0m0s"}`:          {Kind: subjects.AckNext, Next: subjects.PopOptions{Expires: subjects.MaxExpires}},
		`+ACK {"also":["a","b"]}`:            {Also: []string{"a", "b"}},
		`+NXT {"batch":3,"frames":true,"also":["a"]}`: {Kind: subjects.AckNext, Next: subjects.PopOptions{Batch: 3, Frames: true}, Also: []string{"a"}},
		`+NXT {"batch":3,"also":["a"]}`:               {Kind: subjects.AckNext, Next: subjects.PopOptions{Batch: 3}, Also: []string{"a"}},
	} {
		if got := string(a.Encode()); got != want {
			t.Errorf("%+v: encoded to %s, want %s", a, got, want)
		}
		if got, err := subjects.ParseAck([]byte(want)); err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%s: parsed to %+v, %v, want %+v", want, got, err, a)
		}
	}
}

func TestLeaseHeaders(t *testing.T) {
	until := time.Date(2026, 11, 21, 8, 30, 0, 1000, time.UTC)
	h := map[string][]string{
		subjects.HeaderDeliveries: {"3"},
		subjects.HeaderLeaseUntil: {until.Format(subjects.TimeLayout)},
	}
	if got, err := subjects.ParseLeaseHeaders(h); err != nil || got != (subjects.LeaseInfo{Deliveries: 3, Until: until}) {
		t.Errorf("%v: %+v, %v", h, got, err)
	}
	if got, err := subjects.ParseLeaseHeaders(nil); err != nil || got != (subjects.LeaseInfo{}) {
		t.Errorf("no headers: %+v, %v", got, err)
	}
	for _, name := range []string{subjects.HeaderDeliveries, subjects.HeaderLeaseUntil} {
		if got, err := subjects.ParseLeaseHeaders(map[string][]string{name: {"soon"}}); err == nil {
			t.Errorf("a bad %s: %+v", name, got)
		}
	}
}

func TestBatchEnd(t *testing.T) {
	if n, ends, err := subjects.ParseBatchEnd(nil); n != 0 || ends || err != nil {
		t.Errorf("an item: %d, %t, %v", n, ends, err)
	}
	if n, ends, err := subjects.ParseBatchEnd(map[string][]string{subjects.HeaderBatchCount: {"12"}}); n != 12 || !ends || err != nil {
		t.Errorf("the end: %d, %t, %v", n, ends, err)
	}
	if n, ends, err := subjects.ParseBatchEnd(map[string][]string{subjects.HeaderBatchCount: {"x"}}); !ends || err == nil {
		t.Errorf("a bad end: %d, %t, %v", n, ends, err)
	}
}

func TestFramesOf(t *testing.T) {
	header := func(text string) map[string][]string { return map[string][]string{subjects.HeaderFrames: {text}} }
	if n, err := subjects.FramesOf(nil); n != 0 || err != nil {
		t.Errorf("an item: %d, %v", n, err)
	}
	for _, want := range []int{1, 12, subjects.MaxFrames} {
		if n, err := subjects.FramesOf(header(fmt.Sprint(want))); n != want || err != nil {
			t.Errorf("%d frames: %d, %v", want, n, err)
		}
	}
	for _, text := range []string{"0", "-1", "4097", "x", " 1", "1.5", "0x1", "99999999999999999999"} {
		if n, err := subjects.FramesOf(header(text)); err == nil || !strings.Contains(err.Error(), subjects.HeaderFrames) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}

func TestIsHeartbeat(t *testing.T) {
	for want, h := range map[bool]map[string][]string{
		true:  {subjects.HeaderHeartbeat: {"3"}},
		false: {subjects.HeaderBatchCount: {"3"}},
	} {
		if got := subjects.IsHeartbeat(h); got != want {
			t.Errorf("%v: %t", h, got)
		}
	}
}

// What FormatLost writes, ParseLost reads, and nothing else.
func TestLost(t *testing.T) {
	header := func(text string) map[string][]string { return map[string][]string{subjects.HeaderLost: {text}} }
	for want, lost := range map[string][]int{"": nil, "0": {0}, "3": {3}, "0,1,2,3": {0, 1, 2, 3}, "1,3": {1, 3}} {
		if got := subjects.FormatLost(lost); got != want {
			t.Errorf("%v: formatted to %q, want %q", lost, got, want)
		}
		if got, err := subjects.ParseLost(header(want), 4); err != nil || !slices.Equal(got, lost) {
			t.Errorf("%q: parsed to %v, %v, want %v", want, got, err, lost)
		}
	}
	if lost, err := subjects.ParseLost(nil, 4); lost != nil || err != nil {
		t.Errorf("without a header: %v, %v", lost, err)
	}
	for _, text := range []string{"4", "-1", "1,1", "2,1", "0,4", ",", "0,", ",0", "0, 1", "0,,1", "x", "1.5", "0x1", "99999999999999999999"} {
		lost, err := subjects.ParseLost(header(text), 4)
		if lost != nil || err == nil || !strings.Contains(err.Error(), "want ascending numbers from 0 to 3") {
			t.Errorf("%q: parsed to %v, %v", text, lost, err)
		}
	}
}
