package kv

import (
	"context"
	"math/rand/v2"
	"time"
)

// Limits of the random wait between attempts. The limit is minBackoff before the second attempt,
// and doubles each time up to maxBackoff.
const (
	minBackoff = time.Millisecond
	maxBackoff = 500 * time.Millisecond
)

// Transact runs fn in a transaction, commits it and waits until it is durable. It returns the
// result of fn.
//
// If fn or the commit fails with a [Retryable] error, nothing was written, and fn runs again in a
// new transaction, after growing pauses, until ctx ends. If ctx ends between attempts, its error or
// the last attempt's is returned. All other errors are returned unchanged. That includes
// ErrCommitUnknown, because only the caller knows whether running the work twice does harm: see
// [TransactIdempotent].
//
// fn may run many times, so it must have no effect outside the transaction. It must not commit the
// transaction. [Update] is for work without a result.
func Transact[T any](ctx context.Context, db Database, fn func(Transaction) (T, error)) (T, error) {
	return retry(ctx, Retryable, func() (T, error) { return attempt(ctx, db, fn) })
}

// TransactIdempotent is Transact for work that may run twice without harm: it also retries
// ErrCommitUnknown, unless ctx has ended.
//
// The first attempt may take effect last, even after TransactIdempotent has returned. Only work
// that reads what it writes is safe from that, because its attempts conflict with each other.
func TransactIdempotent[T any](
	ctx context.Context, db Database, fn func(Transaction) (T, error),
) (T, error) {
	again := func(err error) bool { return Retryable(err) || MaybeCommitted(err) }
	return retry(ctx, again, func() (T, error) { return attempt(ctx, db, fn) })
}

// Update is Transact for work without a result.
func Update(ctx context.Context, db Database, fn func(Transaction) error) error {
	_, err := Transact(ctx, db, withoutResult(fn))
	return err
}

// UpdateIdempotent is TransactIdempotent for work without a result.
func UpdateIdempotent(ctx context.Context, db Database, fn func(Transaction) error) error {
	_, err := TransactIdempotent(ctx, db, withoutResult(fn))
	return err
}

func withoutResult[T any](fn func(T) error) func(T) (struct{}, error) {
	return func(tx T) (struct{}, error) { return struct{}{}, fn(tx) }
}

// retry repeats attempts whose error allows it, after growing pauses, until ctx ends.
func retry[T any](ctx context.Context, again func(error) bool, try func() (T, error)) (T, error) {
	var backoff Backoff
	for {
		value, err := try()
		if err == nil || !again(err) || ctx.Err() != nil {
			return value, err
		}
		if err := backoff.Wait(ctx); err != nil {
			return value, err
		}
	}
}

// attempt is one attempt. With an error it returns no value.
func attempt[T any](ctx context.Context, db Database, fn func(Transaction) (T, error)) (T, error) {
	var zero T
	tx, err := db.Begin(ctx, BeginOptions{})
	if err != nil {
		return zero, err
	}
	defer tx.Cancel()

	value, err := fn(tx)
	if err != nil {
		return zero, err
	}
	if _, err := tx.Commit().Get(); err != nil {
		return zero, err
	}

	return value, nil
}

// ReadTransact runs fn in a read-only transaction and returns its result. It retries like Transact.
func ReadTransact[T any](ctx context.Context, db Database, fn func(Reader) (T, error)) (T, error) {
	return retry(ctx, Retryable, func() (value T, err error) {
		tx, err := db.BeginRead(ctx)
		if err != nil {
			return value, err
		}
		defer tx.Cancel()
		return fn(tx)
	})
}

// View is ReadTransact for work without a result.
func View(ctx context.Context, db Database, fn func(Reader) error) error {
	_, err := ReadTransact(ctx, db, withoutResult(fn))
	return err
}

// Backoff waits longer after each failed attempt, for a random time of at most 1 ms at first and at
// most 500 ms later, so that transactions that collided do not collide again. The zero value is
// ready to use.
type Backoff struct {
	limit time.Duration
}

// Wait waits. It returns the error of ctx if that ends first.
func (b *Backoff) Wait(ctx context.Context) error {
	b.limit = min(max(minBackoff, b.limit*2), maxBackoff)
	timer := time.NewTimer(rand.N(b.limit))
	defer timer.Stop()

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return ctx.Err() // Both may have come at once.
	}
}
