package fdbpq_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// modelFinished is a job that is done and kept.
type modelFinished struct {
	modelItem
	at, until time.Time
	order     int    // counts the jobs that finished
	result    string // "" is none
	trail     []trail.Attempt
	next      int // successors
}

// keep removes an item that is acknowledged, and keeps its job if the push or the settings say so.
func (b *modelBatch) keep(o *fdbpq.Op, r *fdbpq.Result, i *modelItem) {
	keep := cmp.Or(i.Keep, b.settings.Keep)
	kept := keep > 0 && i.DeadLetter == nil
	if r.NotKept != (!kept && o.Report != nil && o.Report.Result != nil) {
		b.fail(o, r, kept)
	}

	b.lose(i, "acknowledged")
	if !kept {
		return
	}
	b.ended++
	f := &modelFinished{modelItem: *i, at: b.now, until: b.now.Add(keep), order: b.ended}
	f.Headers = f.endLife(b.settings.Trail)
	if o.Report != nil {
		f.result = string(o.Report.Result)
	}
	b.finished[i.Job()] = f
	b.counts["kept"]++
}

// finishedBy returns the finished job that a token has acknowledged, nil if there is none.
func (q *modelQueue) finishedBy(token fdbpq.Token) *modelFinished {
	for _, f := range q.finished {
		if f.token == token {
			return f
		}
	}
	return nil
}

// done returns the finished job with an id, or whose last place the id is; nil if there is none, or
// if it is over.
func (q *modelQueue) done(id fdbpq.ID) *modelFinished {
	for job, f := range q.finished {
		if (job == id || f.ID == id) && f.until.After(q.now) {
			return f
		}
	}
	return nil
}

// wantLost checks the error of an acknowledgement that has lost its lease, in a chain of several.
func (b *modelBatch) wantLost(o *fdbpq.Op, r *fdbpq.Result, lost, done []int, of int) {
	b.wantErr(o, r, fdbpq.ErrLeaseLost)
	if errors.Is(r.Err, fdbpq.ErrDone) != (len(done) == of) {
		b.fail(o, r, done)
	}

	var all *fdbpq.LostLeases
	if of > 1 && (!errors.As(r.Err, &all) || !slices.Equal(all.Lost, lost) ||
		!slices.Equal(all.Done, done) || all.Of != of) {
		b.fail(o, r, lost)
	}
}

// lookFinished checks an operation that looks for a finished job.
func (b *modelBatch) lookFinished(o *fdbpq.Op, r *fdbpq.Result, f *modelFinished) {
	if o.Kind != fdbpq.OpGet {
		b.wantErr(o, r, fdbpq.ErrDone)
		return
	}
	b.counts["found done"]++
	b.wantErr(o, r, nil)
	if next, more := r.Found.Successors(); len(next)+more != f.next {
		b.fail(o, r, f.next)
	}
	if !f.is(withoutNext(&r.Item)) || r.State != fdbpq.Done || r.Found.Finished == nil ||
		!sameTrail(r.Found.Attempts(), f.trail) ||
		string(r.Found.Finished.Result) != f.result || !r.Found.Finished.Until.Equal(f.until) {
		b.fail(o, r, f)
	}
}

// editFinished runs an operation on a finished job.
func (b *modelBatch) editFinished(o *fdbpq.Op, r *fdbpq.Result, f *modelFinished) {
	switch {
	case o.Kind == fdbpq.OpRemove && o.State != fdbpq.Done:
		b.wantErr(o, r, fdbpq.ErrNotFound)
		return
	case o.Kind == fdbpq.OpMove, o.Kind == fdbpq.OpRelease:
		b.wantErr(o, r, fdbpq.ErrDone)
		return
	}

	if b.wantErr(o, r, nil); r.Item.Job() != f.Job() {
		b.fail(o, r, f)
	}
	delete(b.finished, f.Job())
	if o.Kind == fdbpq.OpRemove {
		b.counts["done and removed"]++
		return
	}

	b.counts["run again"]++
	if r.Home != b.name || !r.Item.PushedAt.Equal(b.now) {
		b.fail(o, r, b.name)
	}
	job := f.Job()
	again := &modelItem{
		Item: fdbpq.Item{
			ID:       r.Item.ID,
			PushedAt: b.now,
			Message: fdbpq.Message{
				Value: f.Value, First: &job, Keep: f.Keep,
				Headers: withTrail(f.Headers, f.trail, b.settings.Trail),
			},
		},
		state: fdbpq.Ready,
	}
	if b.settings.TTL > 0 {
		again.Expires = b.now.Add(b.settings.TTL)
	}
	b.add(again)
}

// purgeFinished removes all finished jobs.
func (b *modelBatch) purgeFinished(o *fdbpq.Op, r *fdbpq.Result) {
	if b.wantErr(o, r, nil); r.Len != int64(len(b.finished)) {
		b.fail(o, r, len(b.finished))
	}
	clear(b.finished)
}

// sweepFinished removes finished jobs that are over, and the oldest beyond keep_items. All sweeps
// of a batch have one result.
func (b *modelBatch) sweepFinished(o *fdbpq.Op, r *fdbpq.Result) {
	if b.swept {
		return
	}
	b.swept = true
	before := len(b.finished)
	maps.DeleteFunc(b.finished, func(_ fdbpq.ID, f *modelFinished) bool {
		return !f.until.After(b.now)
	})
	byOrder := slices.SortedFunc(maps.Values(b.finished), (*modelFinished).compare)
	for _, f := range byOrder[:max(0, len(byOrder)-int(b.settings.MostKept()))] {
		if !f.at.Add(time.Minute).After(b.now) {
			delete(b.finished, f.Job())
			b.counts["beyond keep_items"]++
		}
	}

	n := before - len(b.finished)
	if b.counts["swept"] += n; r.Swept.Finished != n {
		b.fail(o, r, n)
	}
}

// anyID is someID, or now and then the id of a finished job or of its last place.
func (r *modelRun) anyID(q *modelQueue) fdbpq.ID {
	jobs := slices.SortedFunc(maps.Keys(q.finished), compareIDs)
	if len(jobs) == 0 || r.random.IntN(3) > 0 {
		return r.someID(q)
	}
	job := jobs[r.random.IntN(len(jobs))]
	if r.random.IntN(2) == 0 {
		return q.finished[job].ID
	}
	return job
}

// compare puts finished jobs in the order in which they finished.
func (f *modelFinished) compare(other *modelFinished) int { return f.order - other.order }

// walkFinished compares the finished jobs that a Browse finds with the model, page by page.
func (r *modelRun) walkFinished(q *modelQueue) {
	var want, got []string
	byOrder := slices.SortedFunc(maps.Values(q.finished), (*modelFinished).compare)
	for _, f := range slices.Backward(byOrder) {
		if f.until.After(r.m.now) {
			want = append(want,
				fmt.Sprintf("%v %.20q %q %v", f.Job(), f.Value, f.result, f.deliveries))
		}
	}

	b := fdbpq.Browse{State: fdbpq.Done, MaxItems: 1 + r.random.IntN(5)}
	for more := true; more; {
		end, err := b.Walk(r.f.ctx, r.f.db, q.target, r.m.now, func(i *fdbpq.Browsed) bool {
			got = append(got, fmt.Sprintf("%v %.20q %q %v", i.Job(), i.Value, i.Finished.Result,
				i.Deliveries))
			return true
		})
		if err != nil {
			r.f.Fatal(err)
		}
		more, b.After, b.AfterTime = end.More, &end.Last, end.LastTime
	}
	if !slices.Equal(got, want) {
		r.f.Fatalf("%s: finished are %q, want %q", q.name, got, want)
	}
}
