package subjects

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Code says why a request failed. It is the value of [HeaderErrorCode]. The numbers are like HTTP's
// status codes.
type Code int

// The codes. They are also the order in which metrics list them.
const (
	CodeBadRequest  Code = 400 // the request is wrong, and would be wrong every time
	CodeNotFound    Code = 404 // the queue is empty or paused, or the item is not there
	CodeConflict    Code = 409 // the lease is lost or its item settled; or the item is leased
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

// Error is what the reply to a failed request says in its headers.
type Error struct {
	// Code is one of the constants, or 0 if the reply carries no number.
	Code Code
	// Unknown means that the request may have been carried out. Without it, the request changed
	// nothing.
	Unknown bool
	// Text says what was wrong and what would be right.
	Text string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s (%d)", e.Text, e.Code) }

// Headers returns the headers of the reply. They belong to the caller.
func (e *Error) Headers() map[string][]string {
	h := map[string][]string{
		HeaderError:     {e.Text},
		HeaderErrorCode: {strconv.Itoa(int(e.Code))},
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

// ErrorFromHeaders is the inverse of [Error.Headers]. It returns nil for the reply to a request
// that succeeded.
func ErrorFromHeaders(h map[string][]string) *Error {
	text, code := first(h, HeaderError), first(h, HeaderErrorCode)
	if text == "" && code == "" {
		return nil
	}

	e := &Error{Text: text, Unknown: first(h, HeaderOutcome) == OutcomeUnknown}
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
