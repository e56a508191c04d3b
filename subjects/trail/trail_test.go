package trail

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var at = time.Date(2026, 11, 29, 22, 51, 45, 603_841_000, time.UTC)

// attempt returns an attempt of a life with all members.
func attempt(life, number int64, reason string) Attempt {
	return Attempt{
		Life: life, Number: number, From: at, To: at.Add(time.Second), How: Nak,
		Holder: "host pid 7", Reason: reason,
	}
}

// attempts returns so many attempts of one life, with one reason.
func attempts(n int, reason string) (all []Attempt) {
	for number := range n {
		all = append(all, attempt(1, int64(number+1), reason))
	}
	return all
}

// numbers returns which attempts of their lives these are.
func numbers(all []Attempt) (list []string) {
	for _, a := range all {
		list = append(list, fmt.Sprint(a.Life, ".", a.Number))
	}
	return list
}

func size(values []string) (bytes int) {
	for _, value := range values {
		bytes += len(value)
	}
	return bytes
}

// The form of an attempt is the one that docs/protocol.md shows, and what is not known is left out.
func TestForm(t *testing.T) {
	for _, test := range []struct {
		of   Attempt
		want string
	}{
		{attempt(1, 3, "disk full"), `{"life":1,"number":3,"from":"2026-11-29T22:51:45.603841Z",` +
			`"to":"2026-11-29T22:51:46.603841Z","how":"nak","holder":"host pid 7",` +
			`"reason":"disk full"}`},
		{Attempt{Life: 2, Number: 1, To: at, How: RanOut},
			`{"life":2,"number":1,"to":"2026-11-29T22:51:45.603841Z","how":"ran out"}`},
	} {
		got := Values([]Attempt{test.of}, 1)

		if !slices.Equal(got, []string{test.want}) {
			t.Errorf("got %q, want %q", got, test.want)
		}
		if back := Parse(got); !reflect.DeepEqual(back, []Attempt{test.of}) {
			t.Errorf("read back: %+v, want %+v", back, test.of)
		}
	}
}

// A reason of up to MaxReason bytes stays as it is. A longer one is cut before a character that
// would go across, and ends with the mark, all within MaxReason bytes.
func TestClean(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for reason, want := range map[string]string{
		"":                              "",
		"a\nb\x00c\u0085d":              "a b c d",
		"bad \xff byte":                 "bad \uFFFD byte",
		x(MaxReason):                    x(MaxReason),
		x(MaxReason + 1):                x(MaxReason-len(CutMark)) + CutMark,
		x(1 << 20):                      x(MaxReason-len(CutMark)) + CutMark,
		strings.Repeat("ä", 256):        strings.Repeat("ä", 256),
		strings.Repeat("ä", 257):        strings.Repeat("ä", 254) + CutMark,
		strings.Repeat("😀", 128):        strings.Repeat("😀", 128),
		x(1) + strings.Repeat("😀", 128): x(1) + strings.Repeat("😀", 127) + CutMark,
		strings.Repeat("\xff", 600):     "\uFFFD",
	} {
		got := Clean(reason)

		if got != want {
			t.Errorf("%.20q of %d bytes: got %d bytes, %q, want %q", reason, len(reason), len(got),
				got, want)
		}
	}
}

// Values are ASCII whatever a reason or a holder has, and are read as they were.
func TestASCII(t *testing.T) {
	a := attempt(1, 1, "Schlüssel 鍵 😀 \u2028 \"quoted\" back\\slash <&> \x7f")
	a.Holder = "Büro 😀"

	values := Values([]Attempt{a}, 1)

	for i := range len(values[0]) {
		if c := values[0][i]; c >= utf8.RuneSelf || c < ' ' {
			t.Errorf("byte %d is %#x: %q", i, c, values[0])
		}
	}
	if back := Parse(values); !reflect.DeepEqual(back, []Attempt{a}) {
		t.Errorf("read back: %+v, want %+v", back, a)
	}
}

// The first attempt and the newest ones stay, in their order, whichever lives they are of.
func TestFirstAndNewest(t *testing.T) {
	all := []Attempt{
		attempt(1, 1, ""), attempt(1, 4, ""), attempt(1, 5, ""), attempt(2, 1, ""),
		attempt(2, 2, ""), attempt(3, 1, ""),
	}
	before := slices.Clone(all)

	for most, want := range map[int][]string{
		1: {"1.1"},
		2: {"1.1", "3.1"},
		3: {"1.1", "2.2", "3.1"},
		5: {"1.1", "1.5", "2.1", "2.2", "3.1"},
		6: {"1.1", "1.4", "1.5", "2.1", "2.2", "3.1"},
		9: {"1.1", "1.4", "1.5", "2.1", "2.2", "3.1"},
	} {
		if got := numbers(Parse(Values(all, most))); !slices.Equal(got, want) {
			t.Errorf("%d: got %v, want %v", most, got, want)
		}
	}
	if !reflect.DeepEqual(all, before) {
		t.Errorf("the attempts that were given have changed: %+v", all)
	}
}

// Attempts that are too large together have shorter reasons from the second on. The first reason,
// which is the cause, stays whole.
func TestMaxBytes(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		cut    bool
	}{
		"they fit":     {strings.Repeat("x", 300), false},
		"they do not":  {strings.Repeat("x", MaxReason), true},
		"as they grow": {strings.Repeat("é", MaxReason/2), true}, // three times as long in ASCII
	} {
		values := Values(attempts(16, test.reason), 16)

		if size(values) > MaxBytes {
			t.Errorf("%s: %d bytes", name, size(values))
		}
		all := Parse(values)
		if len(all) != 16 || all[0].Reason != test.reason {
			t.Errorf("%s: %d attempts, the first with %q", name, len(all), all[0].Reason)
		}
		for _, a := range all[1:] {
			if (a.Reason != test.reason) != test.cut || test.cut &&
				(!strings.HasSuffix(a.Reason, CutMark) || len(a.Reason) < MaxReason/16) {
				t.Errorf("%s: attempt %d has the reason %q", name, a.Number, a.Reason)
			}
		}
	}
}

// Where even attempts without reasons are too large, those after the first go, the oldest first.
func TestMaxBytesWithoutReasons(t *testing.T) {
	all := attempts(16, strings.Repeat("é", MaxReason/2))
	for i := range all {
		all[i].Holder = strings.Repeat("é", 64) // 384 bytes in ASCII
	}

	values := Values(all, 16)

	got := numbers(Parse(values))
	if n := len(got); size(values) > MaxBytes || n < 8 || n > 15 || got[0] != "1.1" ||
		got[1] != fmt.Sprint("1.", 16-n+2) || got[n-1] != "1.16" {
		t.Errorf("%d bytes with %v", size(values), got)
	}
	told := Parse(values)
	if told[0].Reason != all[0].Reason {
		t.Errorf("the first reason is %q", told[0].Reason)
	}
	if left := int64(16 - len(got)); told[1].LeftOut != left || told[0].LeftOut != 0 {
		t.Errorf("%d and %d are left out, want 0 and %d", told[0].LeftOut, told[1].LeftOut, left)
	}

	again := Parse(Values(append(told, all[0]), 16))
	if n := int64(17 - len(again)); again[1].LeftOut != n {
		t.Errorf("with one more %d are left out, want %d", again[1].LeftOut, n)
	}
	if last := Parse(Last(Values(again, 16))); len(last) != 1 || last[0].LeftOut != 16 {
		t.Errorf("the last is %+v", last)
	}
}

// What cannot be read is passed over, and members that a later version may add are ignored.
func TestParseUnreadable(t *testing.T) {
	good := Values(attempts(2, "no"), 2)
	newer := strings.Replace(good[1], "{", `{"later":[1],`, 1)

	got := Parse([]string{
		"", "{", "null", "[]", "{}", `{"life":"x"}`, good[0], `{"life":1,"to":"yesterday"}`, newer,
	})

	if !reflect.DeepEqual(got, attempts(2, "no")) {
		t.Errorf("got %+v", got)
	}
	if Parse(nil) != nil {
		t.Error("attempts out of nothing")
	}
}

// A job as text leads back to its queue and id, also of a queue whose name has spaces.
func TestParseJob(t *testing.T) {
	want := Job{Queue: "mails.out", ID: "FQEU"}
	if got, ok := ParseJob(want.String()); !ok || got != want {
		t.Errorf("got %+v, %t, want %+v", got, ok, want)
	}
	for _, value := range []string{"", " ", "mails", "mails ", " FQEU"} {
		if got, ok := ParseJob(value); ok {
			t.Errorf("%q: got %+v", value, got)
		}
	}
}

// The first MaxSuccessors are named, and the others counted.
func TestSuccessors(t *testing.T) {
	for _, n := range []int{0, 1, MaxSuccessors, MaxSuccessors + 1, 256} {
		var all []Job
		for i := range n {
			all = append(all, Job{Queue: "mails", ID: fmt.Sprint("ID", i)})
		}

		values := append([]string{"", "mails"}, Successors(all)...) // and what nobody writes

		got, more := ParseSuccessors(values)

		named := min(n, MaxSuccessors)
		if !slices.Equal(got, all[:named]) || more != n-named {
			t.Errorf("of %d: %d more than %v", n, more, got)
		}
	}
}
