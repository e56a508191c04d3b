package subjects

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// build returns the payload with these frames.
func build(frames ...Frame) (payload []byte) {
	for _, f := range frames {
		payload = AppendFrame(payload, f)
	}
	return payload
}

// framesOf returns the frames of a payload.
func framesOf(t *testing.T, payload []byte) []Frame {
	t.Helper()
	frames, err := ParseFrames(payload)
	if err != nil {
		t.Fatalf("%x: %v", payload, err)
	}
	return frames
}

func sameFrame(a, b Frame) bool {
	return a.Priority == b.Priority && bytes.Equal(a.Headers, b.Headers) &&
		bytes.Equal(a.Value, b.Value)
}

// A frame is its priority and two lengths, big-endian, then its headers and its value.
func TestFrameBytes(t *testing.T) {
	frame := Frame{Priority: -2, Headers: []byte("h"), Value: []byte("val")}

	got := string(AppendFrame([]byte("before"), frame))

	want := "before\xff\xff\xff\xff\xff\xff\xff\xfe\x00\x00\x00\x01\x00\x00\x00\x03hval"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Up to MaxFrames frames are read as they were written.
func TestFramesRoundTrip(t *testing.T) {
	want := []Frame{
		{},
		{Priority: math.MinInt64, Value: []byte("v")},
		{Priority: math.MaxInt64, Headers: []byte("NATS/1.0\r\n\r\n")},
		{Priority: 1, Headers: []byte("h"), Value: make([]byte, 70_000)},
	}

	if got := framesOf(t, build(want...)); !slices.EqualFunc(got, want, sameFrame) {
		t.Errorf("got %v, want %v", got, want)
	}

	if n := len(framesOf(t, build(make([]Frame, MaxFrames)...))); n != MaxFrames {
		t.Errorf("%d frames, want %d", n, MaxFrames)
	}
}

// A frame's slices share the payload, but appending to one does not change the next.
func TestFramesAreApart(t *testing.T) {
	payload := build(Frame{Headers: []byte("h"), Value: []byte("v")}, Frame{Value: []byte("w")})
	before := slices.Clone(payload)

	for _, f := range framesOf(t, payload) {
		_ = append(f.Headers, "xxxxxxxxxxxxxxxxxxxxxx"...)
		_ = append(f.Value, "xxxxxxxxxxxxxxxxxxxxxx"...)
	}
	if !bytes.Equal(payload, before) {
		t.Errorf("the payload is now %q", payload)
	}
}

// A payload that is no sequence of frames is refused with the number of the first bad one.
func TestParseFramesRefuses(t *testing.T) {
	one, other := Frame{Value: []byte("one")}, Frame{Headers: []byte("head"), Value: []byte("two")}
	two := string(build(one, other))
	lengths := func(headers, value string) string {
		return "\x00\x00\x00\x00\x00\x00\x00\x05" + headers + value
	}

	for _, test := range []struct {
		payload string
		is      error
		want    string
	}{
		{"", ErrFrame, "bad frames: there are none: want 1 to 4096"},
		{
			"x", ErrFrame,
			"bad frames: frame 0 ends after 1 bytes: want 16 bytes for its priority and lengths",
		},
		{
			two[:18], ErrFrame,
			"frame 0 has a value of 3 bytes according to its lengths, but only 2 bytes are left",
		},
		{two[:20], ErrFrame, "frame 1 ends after 1 bytes"},
		{
			two[:19+16+3], ErrFrame,
			"frame 1 has headers of 4 bytes according to its lengths, but only 3 bytes are left",
		},
		{
			two[:len(two)-1], ErrFrame,
			"frame 1 has a value of 3 bytes according to its lengths, but only 2 bytes are left",
		},
		{two + "\n", ErrFrame, "frame 2 ends after 1 bytes"},
		{
			lengths("\xff\xff\xff\xff", "\xff\xff\xff\xff") + "x", ErrFrame,
			"frame 0 has headers of 4294967295 bytes according to its lengths, " +
				"but only 1 bytes are left",
		},
		{
			lengths("\x00\x00\x00\x01", "\xff\xff\xff\xff") + "x", ErrFrame,
			"frame 0 has a value of 4294967295 bytes according to its lengths, " +
				"but only 0 bytes are left",
		},
		{`[{"priority":1,"value":"x"}]`, ErrFrame, "frame 0 has"},
		{
			string(build(make([]Frame, MaxFrames+1)...)), ErrTooManyFrames,
			"too many frames: want at most 4096: send several",
		},
		{
			string(build(make([]Frame, MaxFrames)...)) + "x", ErrTooManyFrames,
			"want at most 4096",
		},
	} {
		_, err := ParseFrames([]byte(test.payload))
		if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.100q: got %v, want %q", test.payload, err, test.want)
		}
	}
}

// Headers become a block that NATS can carry.
func TestAppendHeaders(t *testing.T) {
	for want, h := range map[string]map[string][]string{
		"":                                       nil,
		"NATS/1.0\r\na: 1\r\na: 2\r\n\r\n":       {"a": {"1", "2"}},
		"NATS/1.0\r\nX-y: p q  r\r\n\r\n":        {"X-y": {"  p q  r\t "}},
		"NATS/1.0\r\nempty: \r\n\r\n":            {"empty": {""}},
		"NATS/1.0\r\n!#$%&'*+-.^_`|~: \r\n\r\n":  {"!#$%&'*+-.^_`|~": {" "}},
		"NATS/1.0\r\nunicode: gr\u00fcn\r\n\r\n": {"unicode": {"gr\u00fcn"}},
	} {
		if got, err := AppendHeaders(nil, h); string(got) != want || err != nil {
			t.Errorf("%q: got %q, %v, want %q", h, got, err, want)
		}
	}
}

// Headers whose names or values NATS cannot carry are refused.
func TestAppendBadHeaders(t *testing.T) {
	for _, name := range []string{"", "a b", "a:", "gr\u00fcn", "a\r\nb"} {
		got, err := AppendHeaders(nil, map[string][]string{name: {"x"}})
		if got != nil || err == nil || !strings.Contains(err.Error(), "want a name of letters") {
			t.Errorf("%q: got %q, %v", name, got, err)
		}
	}

	for _, value := range []string{"a\r\nPq-Group: b", "a\n", "\r"} {
		got, err := AppendHeaders(nil, map[string][]string{"a": {"x", value}})
		if got != nil || err == nil || !strings.HasSuffix(err.Error(), ": want one line") {
			t.Errorf("%q: got %q, %v", value, got, err)
		}
	}
}

// The bridge returns a value of several lines, which another program has stored, in one.
func TestAppendHeaderLines(t *testing.T) {
	const want = "X-y: p  q   r\r\n"
	lines, err := AppendHeaderLines(nil, map[string][]string{"X-y": {"  p\r\nq \n r\t "}})
	if string(lines) != want || err != nil {
		t.Errorf("got %q, %v, want %q", lines, err, want)
	}
}

// Frames with any headers and values are read as they were written.
func FuzzFrames(f *testing.F) {
	headers, none := []byte("NATS/1.0\r\na: b\r\n\r\n"), []byte(nil)
	f.Add(int64(0), none, none, int64(-1), headers, []byte("value"))

	f.Fuzz(func(t *testing.T, p1 int64, h1, v1 []byte, p2 int64, h2, v2 []byte) {
		want := []Frame{{p1, h1, v1}, {p2, h2, v2}, {p1, h2, v1}}
		if got := framesOf(t, build(want...)); !slices.EqualFunc(got, want, sameFrame) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// A payload is exactly the bytes that its frames build, or refused with an error that fits into a
// header.
func FuzzParseFrames(f *testing.F) {
	f.Add([]byte{})
	f.Add(build(Frame{Value: []byte("one")}, Frame{Headers: []byte("head"), Value: []byte("two")}))
	f.Add(build(Frame{Value: []byte("one")})[:18])
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x05\xff\xff\xff\xff\xff\xff\xff\xffx"))

	f.Fuzz(func(t *testing.T, payload []byte) {
		if _, err := ParseFrames(payload); err != nil {
			WantSendable(t, err, ErrFrame, ErrTooManyFrames)
			return
		}
		if again := build(framesOf(t, payload)...); !bytes.Equal(again, payload) {
			t.Fatalf("%x is built as %x", payload, again)
		}
	})
}

var pushedAt = time.Date(2199, 12, 31, 23, 59, 59, 999_999_999, time.UTC)

// The reply to a push is what a JetStream publisher expects, with numbers that JavaScript can hold.
func TestPushedIsAPubAck(t *testing.T) {
	const (
		priority = `{"queue":"jobs","id":"abc","priority":-5,` +
			`"stream":"jobs","seq":7258118399999999}`
		fifo = `{"queue":"mail","id":"abc","stream":"mail","seq":7258118399999999}`
	)
	for want, payload := range map[string][]byte{
		priority: AppendPushed(nil, Priority, "jobs", "abc", -5, pushedAt),
		fifo:     AppendPushed(nil, FIFO, "mail", "abc", 0, pushedAt),
	} {
		if string(payload) != want {
			t.Errorf("got %s, want %s", payload, want)
		}

		got, err := ParseReply[Pushed](payload)
		if err != nil || got.Stream != got.Queue || got.Seq != 7258118399999999 ||
			got.Seq >= 1<<53 {
			t.Errorf("%s: got %+v, %v", payload, got, err)
		}
	}

	b := make([]byte, 0, 1000)
	n := testing.AllocsPerRun(100, func() {
		b = AppendPushed(b[:0], Priority, "jobs", "abc", 7, pushedAt)
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// The reply to a batch of pushes is read as it was written.
func TestPushedBatch(t *testing.T) {
	ids := []string{"abc", "d", "ef"}
	appendID := func(b []byte, i int) []byte { return append(b, ids[i]...) }

	payload := AppendPushedBatch([]byte("x"), "jobs", len(ids), appendID, pushedAt)[1:]

	want := `{"queue":"jobs","ids":["abc","d","ef"],"stream":"jobs","seq":7258118399999999}`
	if string(payload) != want {
		t.Errorf("got %s, want %s", payload, want)
	}

	got, err := ParsePushedBatch(payload)
	if err != nil || got.Queue != "jobs" || got.Stream != "jobs" || !slices.Equal(got.IDs, ids) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A failed push tells JetStream's publishers the code and the text, as a failed publish does.
func TestErrorPayload(t *testing.T) {
	text := "say \"no\"\x00\xff\u00fc"
	payload := (&Error{Code: 503, Text: text}).Payload()

	var got struct {
		Error struct {
			Code        int
			Description string
		}
	}

	err := json.Unmarshal(payload, &got)
	if err != nil || got.Error.Code != 503 ||
		got.Error.Description != strings.ToValidUTF8(text, "\ufffd") {
		t.Errorf("%s: got %+v, %v", payload, got, err)
	}
}
