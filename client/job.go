package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/subjects/settings"
)

// Job is an item that a [Worker] has leased.
type Job struct {
	Item
	// Queue is the name of the queue.
	Queue string
	// Deliveries is how many times the item was delivered, this time included; 0 if the message
	// left no room for that in the reply.
	Deliveries int64
	// MaxDeliver is how many deliveries the settings of the queue allowed when the job was leased;
	// 0 if there is no limit, or the message left no room for it in the reply.
	MaxDeliver int64

	result *result // of the Delivery; nil if no Worker made the Job

	progress func(context.Context, []byte) error // nil if no Worker made the Job
}

// SetResult says what the job returns if its Work returns nil, for [Queue.Result]: any bytes, even
// none, which must not change any more, and their type, such as "text/plain", or "" for none. The
// last call counts. [Returns] and [Function] call it for you.
//
// The result goes with the acknowledgement, so it is stored if and only if this delivery counts. It
// is ignored unless the job is kept: see [Keep]. If the bridge refuses it because it is larger than
// 64 KiB, or what PQ_MAX_RESULT says there, or than a message of NATS, the job fails with that
// reason, as if Work had returned it as an error.
func (j *Job) SetResult(value []byte, contentType string) {
	j.outcome().set(value, contentType)
}

// Then has the acknowledgement of the job push an item to another queue: see [Delivery.Then]. The
// job is done and the item is pushed, or neither. If Work returns an error, nothing is pushed. If
// the bridge refuses a successor, the job fails with that reason, as if Work had returned it.
func (j *Job) Then(queue string, priority int64, value []byte, options ...PushOption) error {
	return j.outcome().push(queue, priority, Message{Value: value}, options)
}

// outcome returns what the acknowledgement of the job carries.
func (j *Job) outcome() *result {
	if j.result == nil {
		j.result = new(result)
	}
	return j.result
}

// Progress says how far the job is, in bytes that are kept as they are: see [Delivery.Progress]. It
// returns once the bridge knows, with [ErrLeaseLost] if somebody else may have the job; then the
// context of the Work ends too. It does nothing for a Job that no Worker made.
func (j *Job) Progress(ctx context.Context, progress []byte) error {
	if j.progress == nil {
		return nil
	}
	return j.progress(ctx, progress)
}

// LastTry reports whether this is the last delivery that MaxDeliver allows. If the Work fails, the
// job becomes a dead letter.
func (j *Job) LastTry() bool { return j.MaxDeliver > 0 && j.Deliveries >= j.MaxDeliver }

// Work does a job. The job belongs to it.
//
// If Work returns nil, the job is acknowledged, with what [Job.SetResult] has set. If it returns an
// error, the job comes back after the queue's backoff, or else after [WorkerOptions.RetryDelay] and
// longer each time, without end unless the queue has max_deliver. After the last delivery that
// max_deliver allows, it becomes a dead letter with the text of the error, cut at 1,024 bytes. The
// text is all that is kept, so it has to name its causes, as those of fmt.Errorf and errors.Join
// do; if it is empty, the type of the error takes its place. [Snooze], [Drop] and [RetryAfter]
// return errors that do something else; they may be wrapped. A panic, also of a method of the
// error, counts as an error whose text has the stack, innermost call first. runtime.Goexit, which
// testing.T.FailNow calls, counts as an error too.
//
// The context ends
//
//   - with the cause [ErrLeaseLost] when the lease is lost, or could not be extended in time and
//     may be: somebody else may already do the job;
//   - with the cause [ErrStopped] when the context of [Worker.Shutdown] ends;
//   - with the cause [ErrTimedOut] after [WorkerOptions.JobTimeout].
//
// A job may be done more than once, for instance if its acknowledgement arrives after the lease has
// ended. If that matters, have Work remember the IDs of jobs that it has done: they stay the same,
// also when a job moves, dies and is redriven.
type Work func(ctx context.Context, job *Job) error

// Snooze returns an error with which Work returns the job to the queue for delay, 0 to ten years.
// The delivery does not count. With any other delay, such as the time until a moment that is over,
// the error is an [ErrBadRequest], and the job fails.
func Snooze(delay time.Duration) error {
	return cmp.Or(checkDuration("Snooze", delay), error(&snoozed{delay}))
}

// IsSnooze reports whether err is or wraps an error that [Snooze] returned. It is for Middleware.
func IsSnooze(err error) bool { return errors.As(err, new(*snoozed)) }

type snoozed struct{ delay time.Duration }

func (s *snoozed) Error() string { return fmt.Sprintf("again in %v", s.delay) }

// Drop returns an error with which Work makes the job a dead letter. The reason is cut at 256
// bytes.
func Drop(reason string) error { return &dropped{reason} }

// IsDrop reports whether err is or wraps an error that [Drop] returned. It is for Middleware.
func IsDrop(err error) bool { return errors.As(err, new(*dropped)) }

type dropped struct{ reason string }

func (d *dropped) Error() string { return "dropped: " + d.reason }

// RetryAfter returns an error that wraps err and with which Work returns the job to the queue for
// delay, 0 to ten years, instead of the queue's backoff or the worker's RetryDelay. The delivery
// counts, as for any error. err should say why; it may be nil. With any other delay, the error also
// wraps an [ErrBadRequest], and the job fails without a delay of its own.
func RetryAfter(delay time.Duration, err error) error {
	err = cmp.Or(err, errNoReason)
	if wrong := checkDuration("RetryAfter", delay); wrong != nil {
		return fmt.Errorf("%w; %w", err, wrong)
	}
	return &retry{err, delay}
}

// checkDuration refuses a duration below 0 or beyond ten years.
func checkDuration(of string, d time.Duration) error {
	if d < 0 || d > settings.MaxDelay {
		return badRequest("%s is %v: want 0s to %v", of, d, settings.MaxDelay)
	}
	return nil
}

var errNoReason = errors.New("no reason was given")

type retry struct {
	error
	delay time.Duration
}

func (r *retry) Unwrap() error { return r.error }

// ErrTimedOut is the cause of the context of a job that takes longer than
// [WorkerOptions.JobTimeout].
var ErrTimedOut = errors.New("timed out")

// workFailure says what becomes of a job whose Work has failed.
type workFailure struct {
	text         string        // of the error, or the reason of a Drop
	delay        time.Duration // until the job comes back, or Backoff
	snooze, drop bool
}

// workFailureOf returns what becomes of a job whose Work returned an error. Methods of errors may
// panic, for example on a nil pointer in a non-nil error. In callSafely, that counts as a panic of
// the job.
func workFailureOf(err error) *workFailure {
	var snooze *snoozed
	var drop *dropped
	var again *retry
	switch {
	case errors.As(err, &snooze):
		return &workFailure{text: snooze.Error(), delay: snooze.delay, snooze: true}
	case errors.As(err, &drop):
		return &workFailure{text: drop.reason, drop: true}
	case errors.As(err, &again):
		return &workFailure{text: err.Error(), delay: again.delay}
	}
	text := cmp.Or(err.Error(), fmt.Sprintf("%T", err))
	return &workFailure{text: text, delay: Backoff}
}

// timeOut is for a job that has timed out. If Work has decided what happens to the job, that counts
// all the same.
func (o *workFailure) timeOut() {
	switch o.text {
	case ErrTimedOut.Error(), context.DeadlineExceeded.Error(), context.Canceled.Error():
		o.text = ErrTimedOut.Error()
	default:
		if !o.snooze && !o.drop {
			o.text = fmt.Sprintf("%v: %s", ErrTimedOut, o.text)
		}
	}
}

// callSafely calls Work, and says what becomes of the job if it fails or panics.
func (w Work) callSafely(ctx context.Context, job *Job) (failed *workFailure) {
	defer func() {
		if p := recover(); p != nil {
			failed = &workFailure{text: panicText(p), delay: Backoff}
		}
	}()
	if err := w(ctx, job); err != nil {
		return workFailureOf(err)
	}
	return nil
}

// maxPanicText is the most bytes of a panic's text, so that the reason of a dead letter has room
// for the stack.
const maxPanicText = 300

// panicText says how a job has panicked. The function that recovers must call it. The innermost
// calls come first, because the reason of a dead letter is cut.
func panicText(value any) string {
	var b strings.Builder
	fmt.Fprintf(&b, "panic: %s", cut(fmt.Sprint(value), maxPanicText))

	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	inJob := false // the calls of the job come after runtime.gopanic
	for frame, more := frames.Next(); more; frame, more = frames.Next() {
		name := frame.Function
		inJob = inJob || name == "runtime.gopanic"
		if inJob && !strings.HasPrefix(name, "runtime.") {
			fmt.Fprintf(&b, "\n%s (%s:%d)", name, path.Base(frame.File), frame.Line)
		}
	}
	return b.String()
}
