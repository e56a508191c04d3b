package client

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"strings"
	"time"
)

// Job is an item that a Worker has leased.
type Job struct {
	Item
	// Queue is the name of the queue.
	Queue string
	// Deliveries is how many times the item was delivered, this time included; 0 if the message
	// left no room for that in the reply.
	Deliveries int64
	// MaxDeliver is how many deliveries the settings of the queue allow, 0 if they do not limit them
	// or the connection may not read them (pq.<name>.info). The worker reads them when Run begins and
	// once a minute while it does jobs; the first job after a rest has those from before.
	MaxDeliver int64
}

// LastTry reports whether this delivery is the last that MaxDeliver allows: if the Work fails, the
// job becomes a dead letter.
func (j *Job) LastTry() bool { return j.MaxDeliver > 0 && j.Deliveries >= j.MaxDeliver }

// Work does a job. If it returns nil, the job is acknowledged. If it returns an error, that is a
// negative acknowledgement: the job comes back as the queue's backoff says or, after the last
// delivery that max_deliver allows, becomes a dead letter with the text of the error, cut at 1,024
// bytes. [Snooze], [Drop] and [RetryAfter] return errors that do something else; they may be
// wrapped. A panic is an error whose text has the stack, innermost call first. A Work must return or
// panic: runtime.Goexit, as testing.T.FailNow calls it, would end the Worker's own goroutine.
//
// The context ends when the lease is lost, or may be because it could not be extended in time, so
// that somebody else may do the job already: its cause is [ErrLeaseLost]. It also ends when
// [Worker.Shutdown] has waited for long enough, with the cause [ErrStopped], and after
// [WorkerOptions.JobTimeout], with the cause [ErrTimedOut]. The job belongs to the Work.
//
// A job may be done more than once, for instance if its acknowledgement does not arrive before the
// lease is over. If that matters, have the Work note the ID of what it has done, which stays the
// same.
type Work func(ctx context.Context, job *Job) error

// Snooze returns an error for Work that gives the job back for that long, up to ten years, and does
// not count the delivery. 0 or less is at once.
func Snooze(delay time.Duration) error { return &snoozed{max(delay, 0)} }

// IsSnooze reports whether an error is one of [Snooze], for Middleware.
func IsSnooze(err error) bool { return errors.As(err, new(*snoozed)) }

type snoozed struct{ delay time.Duration }

func (s *snoozed) Error() string { return fmt.Sprintf("again in %v", s.delay) }

// Drop returns an error for Work that makes the job a dead letter, with a reason, which is cut at
// 256 bytes.
func Drop(reason string) error { return &dropped{reason} }

// IsDrop reports whether an error is one of [Drop], for Middleware.
func IsDrop(err error) bool { return errors.As(err, new(*dropped)) }

type dropped struct{ reason string }

func (d *dropped) Error() string { return "dropped: " + d.reason }

// RetryAfter returns an error for Work that is err, but gives the job back for that long, up to ten
// years, whatever the queue's backoff says. 0 or less is at once. The delivery counts, as for any
// error.
func RetryAfter(delay time.Duration, err error) error { return &retry{err, max(delay, 0)} }

type retry struct {
	error
	delay time.Duration
}

func (r *retry) Unwrap() error { return r.error }

// delayOf returns the delay of the negative acknowledgement that an error is.
func delayOf(err error) time.Duration {
	var r *retry
	if errors.As(err, &r) {
		return r.delay
	}
	return Backoff
}

// ErrTimedOut is the cause of the context of a job that takes longer than
// [WorkerOptions.JobTimeout].
var ErrTimedOut = errors.New("timed out")

// timedOut returns what an error that plainOutcome returned is after the timeout of the job.
func timedOut(err error) error {
	var again *retry
	switch {
	case errors.As(err, &again):
		return &retry{timedOut(again.error), again.delay}
	case IsSnooze(err), IsDrop(err):
		return err // the Work has decided
	}

	switch text := err.Error(); text {
	case ErrTimedOut.Error(), context.DeadlineExceeded.Error(), context.Canceled.Error():
		return ErrTimedOut
	default:
		return fmt.Errorf("%w: %s", ErrTimedOut, text)
	}
}

// callSafely does a job, and returns an error also if the Work panics.
func (w Work) callSafely(ctx context.Context, job *Job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	return plainOutcome(w(ctx, job))
}

// plainOutcome returns what a Work has returned as a snoozed, a dropped, a retry, or an error that
// has only the text. The methods of other errors may panic, such as those of a nil pointer that is
// not a nil error: here that counts as a panic of the job.
func plainOutcome(err error) error {
	var snooze *snoozed
	var drop *dropped
	var again *retry
	switch {
	case err == nil:
		return nil
	case errors.As(err, &snooze):
		return snooze
	case errors.As(err, &drop):
		return drop
	case errors.As(err, &again):
		return &retry{errors.New(err.Error()), again.delay}
	}
	return errors.New(err.Error())
}

// maxPanicText leaves room for the stack in the reason of a dead letter.
const maxPanicText = 300

// panicked returns the error of a job that has panicked, for the function that recovers. It begins
// with the innermost calls, since the reason of a dead letter is cut.
func panicked(value any) error {
	var b strings.Builder
	fmt.Fprintf(&b, "panic: %s", cut(fmt.Sprint(value), maxPanicText))

	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	inside := false // what has panicked: its calls come after runtime.gopanic
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		name := frame.Function
		if inside = inside || name == "runtime.gopanic"; inside && !strings.HasPrefix(name, "runtime.") {
			fmt.Fprintf(&b, "\n%s (%s:%d)", name, path.Base(frame.File), frame.Line)
		}
	}
	return errors.New(b.String())
}
