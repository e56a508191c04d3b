package results

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

const (
	// lookEvery is after how long a wait looks though nobody has told anything.
	lookEvery = 30 * time.Second
	// lookPage is how many jobs one transaction looks at. After one that failed, maybe because it
	// took too long, it is half as many.
	lookPage = 256
	// maxRest is the longest rest after a look, failedPause the pause after one that failed.
	maxRest, failedPause = 250 * time.Millisecond, time.Second
)

// Run looks until Close has been called or ctx ends.
func (w *Waits) Run(ctx context.Context) {
	for {
		page, closed := w.takeDue()
		if closed {
			return
		}
		if len(page) > 0 {
			if !signal.Pause(ctx, w.look(ctx, page)) {
				return
			}
			continue
		}

		select {
		case <-w.woken:
		case <-ctx.Done():
			return
		}
	}
}

// takeDue takes the jobs for the next look. A quarter of it is for the list again.
func (w *Waits) takeDue() (page []*job, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, from := range []struct{ list, upTo int }{
		{urgent, w.page - w.page/4}, {again, w.page}, {urgent, w.page},
	} {
		list := &w.mu.due[from.list]
		for ; len(*list) > 0 && len(page) < from.upTo; *list = (*list)[1:] {
			if j := (*list)[0]; j.state == due {
				j.state, j.seen = looking, len(j.waits)
				page = append(page, j)
			}
			(*list)[0] = nil
		}
	}
	return page, w.mu.closed
}

// look looks at jobs, answers the waits that are over, and returns how long to rest.
func (w *Waits) look(parent context.Context, page []*job) (rest time.Duration) {
	ops := make([]fdbpq.Op, len(page))
	for i, j := range page {
		ops[i] = fdbpq.Op{Kind: fdbpq.OpGet, Queue: j.queue, ID: j.id.Job, NoValue: true}
	}

	began := time.Now()
	ctx, cancel := context.WithTimeout(parent, w.config.Timeout)
	results, err := w.config.Read(ctx, ops)
	cancel()
	switch damaged := errors.Is(err, kv.ErrCorrupt); {
	case damaged && len(page) > 1: // the others are not to fail with it
		for i := range page {
			rest = max(rest, w.look(parent, page[i:i+1]))
		}
		return rest
	case damaged:
		results, err = []fdbpq.Result{{Err: err}}, nil
	}

	if err != nil {
		w.page = max(len(page)/2, 1)
		w.send(w.noteFailure(page, err))
		return failedPause
	}

	w.page = min(2*w.page, lookPage)

	w.send(w.noteResults(page, results, began))
	return min(time.Since(began), maxRest)
}

// noteResults ends a look, and returns the answers that it gives.
func (w *Waits) noteResults(
	page []*job, results []fdbpq.Result, began time.Time,
) (answers []answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, j := range page {
		r := &results[i]
		noRoom := errors.Is(r.Err, fdbpq.ErrNoRoom)
		over := func(wait *Wait) bool {
			return !noRoom && (r.Err != nil || IsOutcome(r) || !began.Before(wait.Until))
		}
		answers = append(answers, w.takeLocked(j, j.seen, over, r, r.Err)...)
		w.endLookLocked(j, noRoom)
	}
	return answers
}

// noteFailure ends a look that failed, and answers all waits whose time is over: it may be long
// until their turn comes, and then the next look may fail too.
func (w *Waits) noteFailure(page []*job, err error) (answers []answer) {
	w.config.Warn("outcomes of jobs that requests wait for cannot be read; trying again",
		"error", err)
	err = fmt.Errorf("%w: the store does not say what became of the job: try again: %w",
		dispatch.ErrUnavailable, err)

	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, j := range w.mu.jobs {
		over := func(wait *Wait) bool { return !now.Before(wait.Until) }
		answers = append(answers, w.takeLocked(j, len(j.waits), over, nil, err)...)
	}
	for _, j := range page {
		w.endLookLocked(j, true)
	}
	return answers
}

// endLookLocked says when a job is looked at after a look has ended.
func (w *Waits) endLookLocked(j *job, repeat bool) {
	repeat = repeat || j.state == stale
	j.state, j.seen = quiet, 0
	if repeat {
		w.wakeLocked(j, urgent)
		return
	}

	next := lookEvery
	for _, wait := range j.waits {
		next = min(next, time.Until(wait.Until))
	}
	if len(j.waits) > 0 {
		j.timer.Reset(next)
	}
}
