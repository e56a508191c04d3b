package kv

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff between attempts: the first wait is a random part of minBackoff and
// each later one up to twice as long, never over maxBackoff.
const (
	minBackoff = time.Millisecond
	maxBackoff = 500 * time.Millisecond
)

// Transact runs fn in a transaction, commits it and waits until it is durable.
//
// What is retried: fn is run again in a new transaction, after a wait that
// grows, when it or the commit failed with an error that is [Retryable], that
// is, when it is certain that nothing was written. It is retried until ctx
// ends. Everything else is returned to the caller as it is; above all
// ErrCommitUnknown, because only the caller knows whether doing it twice does
// harm. See [TransactIdempotent], and [Update] for work without a result.
//
// fn may run many times, so it must have no effect but on the transaction. It
// must not commit it. When ctx ends between attempts its error is returned.
func Transact[T any](ctx context.Context, db Database, fn func(Transaction) (T, error)) (T, error) {
	return transact(ctx, db, Retryable, fn)
}

// TransactIdempotent is Transact for work that may be done twice without harm:
// ErrCommitUnknown is retried too, unless ctx has ended. The first attempt may
// take effect last, even after this has returned; only work that reads what it
// writes is safe from that, because its attempts conflict with each other.
func TransactIdempotent[T any](ctx context.Context, db Database, fn func(Transaction) (T, error)) (T, error) {
	retry := func(err error) bool { return Retryable(err) || MaybeCommitted(err) }
	return transact(ctx, db, retry, fn)
}

// Update is Transact for work that returns nothing but an error.
func Update(ctx context.Context, db Database, fn func(Transaction) error) error {
	_, err := Transact(ctx, db, func(tx Transaction) (struct{}, error) { return struct{}{}, fn(tx) })
	return err
}

// UpdateIdempotent is TransactIdempotent for work that returns nothing but an
// error.
func UpdateIdempotent(ctx context.Context, db Database, fn func(Transaction) error) error {
	_, err := TransactIdempotent(ctx, db, func(tx Transaction) (struct{}, error) { return struct{}{}, fn(tx) })
	return err
}

func transact[T any](ctx context.Context, db Database, retry func(error) bool, fn func(Transaction) (T, error)) (T, error) {
	var backoff Backoff
	for {
		value, err := attempt(ctx, db, fn)
		if err == nil {
			return value, nil
		}
		var zero T
		if !retry(err) || ctx.Err() != nil {
			return zero, err
		}
		if err := backoff.Wait(ctx); err != nil {
			return zero, err
		}
	}
}

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

// ReadTransact runs fn in a read-only transaction. It is retried as Transact
// retries.
func ReadTransact[T any](ctx context.Context, db Database, fn func(Reader) (T, error)) (T, error) {
	var backoff Backoff
	for {
		value, err := readAttempt(ctx, db, fn)
		if err == nil || !Retryable(err) || ctx.Err() != nil {
			return value, err
		}
		if err := backoff.Wait(ctx); err != nil {
			return value, err
		}
	}
}

// View is ReadTransact for work that returns nothing but an error.
func View(ctx context.Context, db Database, fn func(Reader) error) error {
	_, err := ReadTransact(ctx, db, func(r Reader) (struct{}, error) { return struct{}{}, fn(r) })
	return err
}

func readAttempt[T any](ctx context.Context, db Database, fn func(Reader) (T, error)) (T, error) {
	tx, err := db.BeginRead(ctx)
	if err != nil {
		var zero T
		return zero, err
	}
	defer tx.Cancel()
	return fn(tx)
}

// Backoff waits longer after each failed attempt, with jitter so that those
// who collided do not collide again. The zero value is ready to use.
type Backoff struct {
	limit time.Duration
}

// Wait waits, or returns ctx's error if ctx ends first.
func (b *Backoff) Wait(ctx context.Context) error {
	b.limit = min(max(minBackoff, b.limit*2), maxBackoff)
	timer := time.NewTimer(rand.N(b.limit))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
