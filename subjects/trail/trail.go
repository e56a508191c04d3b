// Package trail says what is kept of the past of a job: its attempts, and what it has pushed. The
// store and the wire have both in the same form. It does no I/O.
package trail

import (
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// Headers in which a job carries its past from one place to the next. Pushes cannot have them.
const (
	// Header has an [Attempt] in each value: those of earlier lives and, in a dead letter or in a
	// finished job, of the last one. The newest is the last value.
	Header = "Pq-Trail"
	// HeaderNext is of a finished job, and has in each value a queue and the id of a job that its
	// acknowledgement has pushed there: see [Successors].
	HeaderNext = "Pq-Next"
	// HeaderParent is of a job that an acknowledgement has pushed: the queue and the id of the
	// acknowledged job. See [ParseJob].
	HeaderParent = "Pq-Parent"
)

// Bounds.
const (
	// MaxReason is the most bytes that are kept of a reason.
	MaxReason = 512
	// MaxBytes is the most bytes of the values of Header.
	MaxBytes = 8 << 10
	// MaxSuccessors is how many successors are named.
	MaxSuccessors = 64
)

// End is how an attempt has ended.
type End string

// The ends of attempts.
const (
	Nak    End = "nak"     // a negative acknowledgement
	Term   End = "term"    // an acknowledgement that gave the item up
	RanOut End = "ran out" // the time of the lease was over
	Done   End = "done"    // an acknowledgement
)

// Attempt is a delivery of a job that has ended, and counts.
type Attempt struct {
	// Life counts from 1. A redrive begins another one.
	Life int64 `json:"life"`
	// Number is how many deliveries there were in this life, this one included.
	Number int64 `json:"number"`
	// From is when the lease began, zero if that is not known, and To when the attempt ended. The
	// clocks of two bridges may have measured them.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to"`
	How  End       `json:"how"`
	// Holder is the name that the lease was taken with; "" is none.
	Holder string `json:"holder,omitzero"`
	// Reason is what the holder said, up to MaxReason bytes. One that was cut ends with "…".
	Reason string `json:"reason,omitzero"`
	// LeftOut is how many attempts came between the one before and this one that had no room.
	LeftOut int64 `json:"left_out,omitzero"`
}

// CutMark is at the end of a reason that was cut.
const CutMark = "…"

// Cut cuts a text so that it has at most n bytes with the mark at its end.
func Cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return settings.CleanText(text, max(n-len(CutMark), 0)) + CutMark
}

// Clean returns a reason as an Attempt has it: without control characters, and cut.
func Clean(reason string) string {
	return Cut(settings.CleanText(reason, MaxReason+utf8.UTFMax), MaxReason)
}

// Parse reads the values of Header. It passes over what it cannot read.
func Parse(values []string) (all []Attempt) {
	for _, value := range values {
		var a Attempt
		if err := strictjson.UnmarshalReply([]byte(value), &a); err == nil && a.Number > 0 {
			all = append(all, a)
		}
	}
	return all
}

// Values returns the values of Header for some attempts: the first and the newest, at most so many
// in all, in at most MaxBytes. For that it cuts reasons, but not the first one, and then leaves
// out more, which Attempt.LeftOut says. most is at least 1.
func Values(all []Attempt, most int) []string {
	all = Ends(all, most)
	for reason := MaxReason; ; reason /= 2 {
		values, size := texts(all, reason)
		switch {
		case size <= MaxBytes:
			return values
		case reason == 0:
			left := all[1].LeftOut + 1
			all = Ends(all, len(all)-1) // a copy; any two have room
			all[1].LeftOut += left
		}
	}
}

// Last returns the value of the last attempt among some values of Header, without its reason. It
// says how many others there were.
func Last(values []string) []string {
	all := Parse(values)
	last := all[max(len(all)-1, 0):]
	for i := range last {
		last[i].Reason = ""
		for _, a := range all[:len(all)-1] {
			last[i].LeftOut += a.LeftOut + 1
		}
	}
	one, _ := texts(last, MaxReason)
	return one
}

// Ends returns the first attempt and the newest, at most so many in all.
func Ends(all []Attempt, most int) []Attempt {
	if len(all) <= most {
		return all
	}
	return append(all[:1:1], all[len(all)-most+1:]...)
}

// texts returns attempts as texts, with shorter reasons from the second on, and their bytes.
func texts(all []Attempt, reason int) (values []string, size int) {
	for i, a := range all {
		if i > 0 {
			a.Reason = Cut(a.Reason, reason)
		}
		values = append(values, ascii(strictjson.Marshal(a)))
		size += len(values[i])
	}
	return values, size
}

// ascii returns JSON without bytes beyond ASCII, which some clients cannot read in headers.
func ascii(text []byte) string {
	var b strings.Builder
	for _, r := range string(text) {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			b.WriteString(`\u`)
			for shift := 12; shift >= 0; shift -= 4 {
				b.WriteByte("0123456789abcdef"[unit>>shift&0xf])
			}
		}
	}
	return b.String()
}
