package requests_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/requests"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// failing is a store whose transactions fail with an error, while there is one.
type failing struct {
	kv.Database
	with *atomic.Pointer[error]
}

func (f failing) err() error {
	if err := f.with.Load(); err != nil {
		return fmt.Errorf("made to fail: %w", *err)
	}
	return nil
}

func (f failing) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.Database.Begin(ctx, o)
}

func (f failing) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.Database.BeginRead(ctx)
}

// A client learns the code, reason and outcome of each error that can end a batch.
func TestErrorsOverTheWire(t *testing.T) {
	t.Parallel()

	var current atomic.Pointer[error]
	wrap := func(db kv.Database) kv.Database { return failing{db, &current} }
	patient := testenv.New(t, testenv.Options{Wrap: wrap})

	// Some mean that a request is tried again until its time is over.
	impatient := testenv.New(t, testenv.Options{
		Wrap:   wrap,
		Bridge: func(o *bridge.Options) { o.RequestTimeout = 50 * time.Millisecond },
	})

	unlisted := requests.WireError{
		Err:  io.ErrUnexpectedEOF,
		Told: subjects.Error{Code: subjects.CodeInternal},
	}

	for _, row := range append(requests.WireErrors(), unlisted) {
		t.Run(row.Err.Error(), func(t *testing.T) {
			current.Store(&row.Err)
			e := patient

			if row.Told.Code == subjects.CodeUnavailable {
				e = impatient
			}

			testenv.Eventually(t, func() error { // its time may be over at any point
				told := subjects.ErrorFromHeaders(
					e.Request("pq.jobs.push", nil, []byte("x")).Header)
				return compareTold(told, row.Told)
			})

			told := subjects.ErrorFromHeaders(e.Request("pq.jobs.peek.min", nil, nil).Header)
			if told == nil || told.Code != row.Told.Code || told.Text == "" {
				t.Errorf("a peek is told %+v, want code %d and a text", told, row.Told.Code)
			}
			if !slices.Contains(subjects.Codes(), row.Told.Code) {
				t.Errorf("no metric for %d", row.Told.Code)
			}
		})
	}

	// Nothing of that was pushed, and the store works again.
	current.Store(nil)
	testenv.Eventually(t, func() error {
		told := subjects.ErrorFromHeaders(patient.Request("pq.jobs.peek.min", nil, nil).Header)
		return compareTold(told, subjects.Error{
			Code:   subjects.CodeNotFound,
			Reason: subjects.ReasonEmpty,
		})
	})

	pushed := patient.Request("pq.jobs.push", nil, []byte("x"))
	if told := subjects.ErrorFromHeaders(pushed.Header); told != nil {
		t.Errorf("a push is told %v", told)
	}
}

// compareTold returns an error unless a reply says this error, with a text.
func compareTold(told *subjects.Error, want subjects.Error) error {
	if told == nil || told.Text == "" {
		return fmt.Errorf("told %v, want %+v and a text", told, want)
	}

	got := *told
	if got.Text = ""; got != want {
		return fmt.Errorf("told %+v, want %+v", told, want)
	}

	return nil
}
