package kvtest

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Engine describes the engine under test.
type Engine struct {
	// Store prepares a store for one test and returns the function that opens it. After Close, the
	// same function opens the store again. A store that keeps its content and is shared (see
	// kv.Traits) is also opened twice at once. The suite closes what it opens. Both functions call
	// t.Fatal if they fail.
	Store func(t *testing.T) (open func() kv.Database)

	// Persistent says that the content of the store survives Close.
	Persistent bool
}

// prefixSize is the length of the prefix of the keys of a test, in bytes.
const prefixSize = 18

// patience bounds each test, so that a store that hangs fails in a named test.
const patience = 5 * time.Minute

type test struct {
	name string
	run  func(*fixture)
}

// onlyIf returns a test that passes on engines of another sort without running.
func onlyIf(sort func(f *fixture) bool, run func(*fixture)) func(*fixture) {
	return func(f *fixture) {
		if sort(f) {
			run(f)
		}
	}
}

// Sorts of engines. Where one is serial, no second writer begins before the first has ended.
func serial(f *fixture) bool     { return f.db.Traits().Serial }
func concurrent(f *fixture) bool { return !f.db.Traits().Serial }
func pipelines(f *fixture) bool  { return f.db.Traits().Pipelines }
func persistent(f *fixture) bool { return f.engine.Persistent }

// fixture is the environment of one test.
type fixture struct {
	*testing.T
	engine Engine
	open   func() kv.Database
	db     kv.Database
	ctx    context.Context
	prefix string
}

func start(t *testing.T, engine Engine) *fixture {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)

	prefix := ("kvtest/" + rand.Text())[:prefixSize-1] + "/"
	f := &fixture{T: t, engine: engine, ctx: ctx, prefix: prefix}
	f.open = engine.Store(t)
	f.db = f.open()
	t.Cleanup(f.stop)
	return f
}

// stop removes what the test wrote, because a shared store would keep it, and closes the store. The
// test may have closed it already.
func (f *fixture) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := kv.UpdateIdempotent(ctx, f.db, func(tx kv.Transaction) error {
		tx.ClearRange(f.all())
		return nil
	})

	if err != nil && !errors.Is(err, kv.ErrClosed) {
		f.Errorf("removing the keys of the test: %v", err)
	}
	if err := f.db.Close(); err != nil {
		f.Errorf("Close: %v", err)
	}
}

// reopen closes the store and opens it again.
func (f *fixture) reopen() {
	f.Helper()
	f.close()
	f.db = f.open()
}

// key returns name under the prefix of the test.
func (f *fixture) key(name string) []byte { return []byte(f.prefix + name) }

// span returns the keys from begin to before end under the prefix of the test.
func (f *fixture) span(begin, end string) kv.Range {
	return kv.Range{Begin: f.key(begin), End: f.key(end)}
}

// all returns the range of every key a test uses.
func (f *fixture) all() kv.Range { return f.span("", "\xff") }

// begin starts a transaction that is cancelled at the end of the test.
func (f *fixture) begin() kv.Transaction {
	f.Helper()
	return f.beginWith(f.ctx, kv.BeginOptions{})
}

// beginWith is begin with a context and options.
func (f *fixture) beginWith(ctx context.Context, o kv.BeginOptions) kv.Transaction {
	f.Helper()
	tx, err := f.db.Begin(ctx, o)
	if err != nil {
		f.Fatalf("Begin with %+v: %v", o, err)
	}
	f.Cleanup(tx.Cancel)
	return tx
}

// beginLater calls Begin in another goroutine. The function that it returns waits for the result.
func (f *fixture) beginLater(ctx context.Context) (begun func() (kv.Transaction, error)) {
	var tx kv.Transaction
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		tx, err = f.db.Begin(ctx, kv.BeginOptions{})
	}()

	return func() (kv.Transaction, error) {
		<-done
		return tx, err
	}
}

func (f *fixture) close() {
	f.Helper()
	if err := f.db.Close(); err != nil {
		f.Fatalf("Close: %v", err)
	}
}

func (f *fixture) beginRead() kv.ReadTransaction {
	f.Helper()
	tx, err := f.db.BeginRead(f.ctx)
	if err != nil {
		f.Fatalf("BeginRead: %v", err)
	}
	f.Cleanup(tx.Cancel)
	return tx
}

// await returns the value of a future that must not fail.
func await[T any](f *fixture, future kv.Future[T]) T {
	f.Helper()
	value, err := future.Get()
	if err != nil {
		f.Fatalf("unexpected error: %v", err)
	}
	return value
}

// absent is how a key without a value is written in expectations.
const absent = "<absent>"

func text(value []byte) string {
	if value == nil {
		return absent
	}
	return string(value)
}
