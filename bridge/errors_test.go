package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// failing is a store that fails with an error if one is set.
type failing struct {
	kv.Database
	err *atomic.Pointer[error]
}

func (f failing) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	if err := f.err.Load(); err != nil {
		return nil, fmt.Errorf("made to fail: %w", *err)
	}
	return f.Database.Begin(ctx, o)
}

func (f failing) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	if err := f.err.Load(); err != nil {
		return nil, fmt.Errorf("made to fail: %w", *err)
	}
	return f.Database.BeginRead(ctx)
}

// Each error that a batch can end with reaches the client with its code, and
// comes back as the same error.
func TestErrorsOverTheWire(t *testing.T) {
	var current atomic.Pointer[error]
	e := testenv.New(t, testenv.Options{
		Wrap:   func(db kv.Database) kv.Database { return failing{db, &current} },
		Bridge: func(o *bridge.Options) { o.RequestTimeout = 500 * time.Millisecond },
	})
	internal := bridge.WireError{Err: io.ErrUnexpectedEOF, Code: 500}
	for _, row := range append(bridge.WireErrors(), internal) {
		t.Run(row.Err.Error(), func(t *testing.T) {
			current.Store(&row.Err)
			err := refused(t, e, row.Code, "pq.jobs.push", nil, []byte("x"))
			if row != internal && !errors.Is(err, row.Err) {
				t.Errorf("%v is not %v", err, row.Err)
			}
			if err.Unknown != row.Unknown {
				t.Errorf("%v: unknown outcome: %t", err, err.Unknown)
			}
			refused(t, e, row.Code, "pq.jobs.peek.min", nil, nil)
			for _, other := range bridge.WireErrors() {
				same := other.Code == row.Code && other.Unknown == row.Unknown
				if errors.Is(err, other.Err) != same {
					t.Errorf("%v is %v: %t", err, other.Err, !same)
				}
			}
			if !slices.Contains(subjects.Codes(), subjects.Code(row.Code)) {
				t.Errorf("no metric for %d", row.Code)
			}
		})
	}
	current.Store(nil)
	wantSettled(t, e)
	wantLen(t, e, "pq", "jobs", 0)
	push(t, e, "pq.jobs.push", nil, "x")
}

func TestErrorFromHeaders(t *testing.T) {
	for _, h := range []nats.Header{nil, {"Pq-Id": {"x"}}} {
		if err := bridge.ErrorFromHeaders(h); err != nil {
			t.Errorf("%v: %v", h, err)
		}
	}
	err := bridge.ErrorFromHeaders(nats.Header{"Nats-Service-Error": {"odd"}, "Nats-Service-Error-Code": {"many"}})
	if wire := err.(*bridge.Error); wire.Code != 0 || wire.Text != "odd" || errors.Is(err, fdbpq.ErrEmpty) {
		t.Errorf("no number: %#v", err)
	}
}
