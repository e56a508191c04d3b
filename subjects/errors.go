package subjects

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Code says why a request failed. It is the value of [HeaderErrorCode]. The numbers are like HTTP's
// status codes.
type Code int

// The codes. They are also the order in which metrics list them.
const (
	CodeBadRequest  Code = 400 // the request is wrong, and would be wrong every time
	CodeNotFound    Code = 404 // the queue is empty or paused, or the item is not there
	CodeConflict    Code = 409 // the lease is lost, or the item in another state
	CodeTooLarge    Code = 413 // the message cannot be stored or sent
	CodeOverloaded  Code = 429 // not run: too many requests wait, or the queue is at a limit
	CodeInternal    Code = 500 // a fault of the service or of the stored data
	CodeUnavailable Code = 503 // not run, unless the outcome is unknown
)

// Codes returns all codes. The slice belongs to the caller.
func Codes() []Code {
	return []Code{CodeBadRequest, CodeNotFound, CodeConflict, CodeTooLarge, CodeOverloaded,
		CodeInternal, CodeUnavailable}
}

// Reason is a word that says which of the meanings of a code a reply has. It is the value of
// [HeaderReason].
type Reason string

// The reasons. The other codes have one meaning each, and no reason.
const (
	// 404: there is nothing to return.
	ReasonEmpty   Reason = "empty"   // the queue is empty, or stayed so while the pop waited
	ReasonPaused  Reason = "paused"  // the queue is paused
	ReasonGroups  Reason = "groups"  // all groups of its ready items are at a limit, or paused
	ReasonMissing Reason = "missing" // no item or schedule has the id

	// 409: the item is not in the state that the request needs.
	ReasonLost      Reason = "lost"       // the lease is lost, or its item settled
	ReasonDone      Reason = "done"       // the job is done and kept
	ReasonLeased    Reason = "leased"     // the item is leased
	ReasonNotLeased Reason = "not_leased" // the item is not leased
	ReasonNotDead   Reason = "not_dead"   // the item is no dead letter
	ReasonRates     Reason = "rates"      // too many rates are in use to purge all items
	ReasonJoined    Reason = "joined"     // no such job waits for others, or not any more
	ReasonJoins     Reason = "joins"      // the job waits for others, or items have too many

	// 413: the message is too large.
	ReasonSize     Reason = "size"      // to be stored, or to be sent
	ReasonMaxBytes Reason = "max_bytes" // for the max_bytes of the request
	ReasonRoom     Reason = "room"      // for what the transaction had left: ask again

	// 429: not now. After +NXT, and a pop that has waited, the code of limit and rate is 404.
	ReasonBusy  Reason = "busy"  // too many requests wait
	ReasonFull  Reason = "full"  // the queue has as many items or bytes as it may
	ReasonLimit Reason = "limit" // as many of its items are leased as may be
	ReasonRate  Reason = "rate"  // the rate of the queue is used up
)

// Error is what the reply to a failed request says in its headers.
type Error struct {
	// Code is one of the constants, or 0 if the reply carries no number.
	Code Code
	// Reason is one of the constants, or "" for a code with one meaning.
	Reason Reason
	// Unknown means that the request may have been carried out. Without it, the request changed
	// nothing.
	Unknown bool
	// Text names the fault, and says what would be right.
	Text string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s (%d)", e.Text, e.Code) }

// Headers returns the headers of the reply. They belong to the caller. Characters of the text that
// are beyond ASCII, in which some clients cannot read a header, become escapes such as \u00fc.
func (e *Error) Headers() map[string][]string {
	var text strings.Builder
	for _, c := range e.Text {
		if c < utf8.RuneSelf {
			text.WriteRune(c)
		} else {
			text.WriteString(strings.Trim(strconv.QuoteRuneToASCII(c), "'"))
		}
	}

	h := map[string][]string{
		HeaderError:     {text.String()},
		HeaderErrorCode: {strconv.Itoa(int(e.Code))},
	}
	if e.Reason != "" {
		h[HeaderReason] = []string{string(e.Reason)}
	}
	if e.Unknown {
		h[HeaderOutcome] = []string{OutcomeUnknown}
	}
	return h
}

// Payload returns the payload of the reply to a failed push, which tells JetStream's publishers the
// same: {"error":{"code":400,"description":"..."}}.
func (e *Error) Payload() []byte {
	type inner struct {
		Code        Code   `json:"code"`
		Description string `json:"description"`
	}
	payload, _ := json.Marshal(struct { // cannot fail for these types
		Error inner `json:"error"`
	}{inner{e.Code, e.Text}})
	return payload
}

// ErrorFromHeaders is the inverse of [Error.Headers], but leaves the escapes. It returns nil for
// the reply to a request that succeeded.
func ErrorFromHeaders(h map[string][]string) *Error {
	text, code := first(h, HeaderError), first(h, HeaderErrorCode)
	if text == "" && code == "" {
		return nil
	}

	e := &Error{Text: text, Unknown: first(h, HeaderOutcome) == OutcomeUnknown}
	e.Reason = Reason(first(h, HeaderReason))
	if n, err := strconv.Atoi(code); err == nil {
		e.Code = Code(n)
	}
	return e
}

// first returns the first value of a header, "" if it is absent.
func first(h map[string][]string, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}
