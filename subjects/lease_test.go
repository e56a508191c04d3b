package subjects_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// Encode writes only what is given, in the order of the documents.
func TestEncodeOptions(t *testing.T) {
	const everything = `{"batch":2,"ack_wait":"1m30s","max_bytes":9,"expires":"1ms",` +
		`"idle_heartbeat":"100ms","no_wait":true,"frames":true,"id":"Q7"}`
	for want, o := range map[string]interface{ Encode() []byte }{
		``:                  subjects.PopOptions{},
		`{"ack_wait":"0s"}`: subjects.PopOptions{Lease: true},
		`{"cancel":"Q7"}`:   subjects.PopOptions{Cancel: "Q7"},
		`{"ack_wait":"1s"}`: subjects.PopOptions{AckWait: time.Second},
		everything: subjects.PopOptions{
			Batch:         2,
			Lease:         true,
			AckWait:       90 * time.Second,
			MaxBytes:      9,
			Expires:       subjects.MinExpires,
			IdleHeartbeat: subjects.MinIdleHeartbeat,
			NoWait:        true,
			Frames:        true,
			ID:            "Q7",
		},
		`+ACK`:                     subjects.Ack{},
		`+ACK {"also":["a","b"]}`:  subjects.Ack{Also: []string{"a", "b"}},
		`-NAK`:                     subjects.Ack{Kind: subjects.AckNak},
		`-NAK {"reason":"\"no\""}`: subjects.Ack{Kind: subjects.AckNak, Reason: `"no"`},
		`-NAK {"delay":"0s","snooze":true}`: subjects.Ack{
			Kind:     subjects.AckNak,
			HasDelay: true,
			Snooze:   true,
		},
		`-NAK {"delay":"1ns"}`: subjects.Ack{Kind: subjects.AckNak, HasDelay: true, Delay: 1},
		`+TERM`:                subjects.Ack{Kind: subjects.AckTerm},
		`+TERM no`:             subjects.Ack{Kind: subjects.AckTerm, Reason: "no"},
		`+WPI`:                 subjects.Ack{Kind: subjects.AckProgress},
		`+NXT`:                 subjects.Ack{Kind: subjects.AckNext},
		`+NXT {"expires":"1h0m0s"}`: subjects.Ack{
			Kind: subjects.AckNext,
			Next: subjects.PopOptions{Expires: subjects.MaxExpires},
		},
		`+NXT {"batch":3,"frames":true,"also":["a"]}`: subjects.Ack{
			Kind: subjects.AckNext,
			Next: subjects.PopOptions{Batch: 3, Frames: true},
			Also: []string{"a"},
		},
	} {
		if got := string(o.Encode()); got != want {
			t.Errorf("%+v: encoded to %s, want %s", o, got, want)
		}
	}
}

// Absent headers of a reply count as nothing, and bad ones are errors that name them.
func TestReplyHeaders(t *testing.T) {
	until := time.Date(2026, 11, 21, 8, 30, 0, 1000, time.UTC)
	h := map[string][]string{
		subjects.HeaderDeliveries: {"3"},
		subjects.HeaderLeaseUntil: {until.Format(subjects.TimeLayout)},
		subjects.HeaderAckWait:    {"1m30s"},
		subjects.HeaderMaxDeliver: {"5"},
		subjects.HeaderBatchCount: {"12"},
		subjects.HeaderHeartbeat:  {"3"},
	}

	want := subjects.LeaseInfo{
		Deliveries: 3,
		Until:      until,
		AckWait:    90 * time.Second,
		MaxDeliver: 5,
	}

	item, err := subjects.ParseItemHeaders(h)
	if err != nil || item.Lease != want {
		t.Errorf("%v: %+v, %v", h, item, err)
	}

	if n, ends, err := subjects.ParseBatchEnd(h); n != 12 || !ends || err != nil {
		t.Errorf("the end: %d, %t, %v", n, ends, err)
	}

	for _, frames := range []int{1, 12, subjects.MaxFrames} {
		h[subjects.HeaderFrames] = []string{fmt.Sprint(frames)}
		if n, err := subjects.FramesOf(h); n != frames || err != nil {
			t.Errorf("%d frames: %d, %v", frames, n, err)
		}
	}

	item, err = subjects.ParseItemHeaders(nil)
	n, ends, endErr := subjects.ParseBatchEnd(nil)
	frames, framesErr := subjects.FramesOf(nil)

	err = errors.Join(err, endErr, framesErr)
	if err != nil || item != (subjects.ItemHeaders{}) || n != 0 || ends || frames != 0 {
		t.Errorf("no headers: %+v, %d, %t, %d, %v", item, n, ends, frames, err)
	}
	if subjects.IsHeartbeat(nil) || !subjects.IsHeartbeat(h) {
		t.Error("a heartbeat has its header")
	}

	for _, text := range []string{
		"0", "-1", "4097", "x", " 1", "1.5", "0x1", "99999999999999999999",
	} {
		h[subjects.HeaderFrames] = []string{text}
		n, err := subjects.FramesOf(h)
		if err == nil || !strings.Contains(err.Error(), subjects.HeaderFrames) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}

	for _, name := range []string{
		subjects.HeaderDeliveries, subjects.HeaderLeaseUntil, subjects.HeaderBatchCount,
	} {
		bad := map[string][]string{name: {"soon"}}
		item, itemErr := subjects.ParseItemHeaders(bad)
		_, _, endErr := subjects.ParseBatchEnd(bad)

		err := errors.Join(itemErr, endErr)
		if err == nil || !strings.Contains(err.Error(), name) || item != (subjects.ItemHeaders{}) {
			t.Errorf("a bad %s: %+v, %v", name, item, err)
		}
	}
}

// Numbers of leases are read as they were written.
func TestNumbersOfLeases(t *testing.T) {
	for want, lost := range map[string][]int{
		"":        nil,
		"0":       {0},
		"3":       {3},
		"0,1,2,3": {0, 1, 2, 3},
		"1,3":     {1, 3},
	} {
		if got := subjects.FormatNumbers(lost); got != want {
			t.Errorf("%v: formatted to %q, want %q", lost, got, want)
		}
		header := map[string][]string{subjects.HeaderLost: {want}}
		got, err := subjects.ParseNumbers(header, subjects.HeaderLost, 4)
		if err != nil || !slices.Equal(got, lost) {
			t.Errorf("%q: parsed to %v, %v, want %v", want, got, err, lost)
		}
	}
}

// Without a header no lease has a number.
func TestNoNumbersOfLeases(t *testing.T) {
	if lost, err := subjects.ParseNumbers(nil, subjects.HeaderLost, 4); lost != nil || err != nil {
		t.Errorf("without a header: %v, %v", lost, err)
	}
}

// Numbers that do not ascend, or of no lease in the acknowledgement, are refused.
func TestBadNumbersOfLeases(t *testing.T) {
	for _, text := range []string{
		"4", "-1", "1,1", "2,1", "0,4", ",", "0,", ",0", "0, 1", "0,,1", "x", "1.5", "0x1",
		"99999999999999999999",
	} {
		header := map[string][]string{subjects.HeaderLost: {text}}
		lost, err := subjects.ParseNumbers(header, subjects.HeaderLost, 4)
		if lost != nil || err == nil ||
			!strings.Contains(err.Error(), "want ascending numbers from 0 to 3") {
			t.Errorf("%q: parsed to %v, %v", text, lost, err)
		}
	}
}
