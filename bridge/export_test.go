package bridge

import (
	"context"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/subjects"
)

var (
	ErrBadRequest  = errBadRequest
	ErrTooLarge    = errTooLarge
	ErrOverloaded  = dispatch.ErrOverloaded
	ErrUnavailable = dispatch.ErrUnavailable
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Error is the error of a reply. It is, in the sense of errors.Is, every error in the
// table with its code and outcome.
type Error struct {
	Code    int
	Unknown bool
	Text    string
}

func (e *Error) Error() string {
	return (&subjects.Error{Code: subjects.Code(e.Code), Unknown: e.Unknown, Text: e.Text}).Error()
}

func (e *Error) Is(target error) bool {
	return slices.ContainsFunc(WireErrors(), func(row WireError) bool {
		return row.Err == target && row.Code == e.Code && row.Unknown == e.Unknown
	})
}

// ErrorFromHeaders returns the *Error that the headers of a reply carry, nil if the
// request succeeded.
func ErrorFromHeaders(h nats.Header) error {
	told := subjects.ErrorFromHeaders(h)
	if told == nil {
		return nil
	}
	return &Error{Code: int(told.Code), Unknown: told.Unknown, Text: told.Text}
}

// WireError is a row of the table between errors and codes.
type WireError struct {
	Err     error
	Code    int
	Unknown bool
}

// WireErrors returns the table.
func WireErrors() []WireError {
	var rows []WireError
	for _, row := range wireErrors {
		for _, err := range row.errs {
			rows = append(rows, WireError{err, int(row.code), row.unknown})
		}
	}
	return rows
}

// Dispatcher returns the dispatcher of b.
func (b *Bridge) Dispatcher() *dispatch.Dispatcher { return b.dispatcher }

// AskAgain asks NATS again for what it denied, as a bridge does from time to time.
func (b *Bridge) AskAgain() { b.askAgain() }

// RestartServing ends the subscriptions to requests and makes them again, as a bridge
// does that yields to another.
func (b *Bridge) RestartServing(ctx context.Context) error {
	if err := b.stopServing(ctx); err != nil {
		return err
	}
	return b.startServing(ctx, b.peers.Members.Store())
}

// Subscriptions returns the subscriptions to requests, and the former ones that the
// bridge still knows.
func (b *Bridge) Subscriptions() (serving, ending []*nats.Subscription) {
	b.serving.mu.Lock()
	defer b.serving.mu.Unlock()
	return b.serving.subscriptions, b.serving.ending
}

const (
	IntakeMessages = intakeMessages
	IntakeBytes    = intakeBytes
)

// MostBacklog returns the largest backlog that a subscription's callback ever had.
func (b *Bridge) MostBacklog() (messages, bytes int) {
	for _, s := range b.serving.subscriptions {
		if m, n, err := s.MaxPending(); err == nil {
			messages, bytes = max(messages, m), max(bytes, n)
		}
	}
	return messages, bytes
}

// Unconfirmed reports whether NATS may still deny replies that were sent.
func (b *Bridge) Unconfirmed() bool { return b.outbox.Unconfirmed() }

// EarlyCancels returns how many cancels are remembered whose requests are not here.
func (b *Bridge) EarlyCancels() int {
	b.waits.mu.Lock()
	defer b.waits.mu.Unlock()
	return len(b.waits.mu.early)
}

// Batches is how many batches the lanes have run.
func (b *Bridge) Batches() int64 { return b.inspector.batches.Load() }
