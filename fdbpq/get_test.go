package fdbpq_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// A get without values says all else of a job, wherever it is and however long its value is, and
// takes no room for it: two of these values would not fit.
func TestGetWithoutValue(t *testing.T) {
	const room = 2_000_000
	value := strings.Repeat("v", 1_500_000)

	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		push := kept(opPush(q, 1, value))
		push.Message.Headers = map[string][]string{"A": {"b"}}
		done := f.done(push).Item.ID
		result := strings.Repeat("r", 200_000)
		f.done(ackWith(q, f.leaseSome(q, 1, time.Minute)[0], result))
		dead := f.done(push).Item.ID
		f.terminate(q)
		leased := f.done(push).Item.ID
		f.leaseSome(q, 1, time.Minute)
		ready := f.done(push).Item.ID

		var gets []fdbpq.Op
		for _, id := range []fdbpq.ID{done, dead, leased, ready, done} {
			get := named(fdbpq.OpGet, q, id)
			get.NoValue = true
			gets = append(gets, get)
		}
		got := must(kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]fdbpq.Result, error) {
			return fdbpq.ReadSome(r, gets, time.Now(), room)
		}))

		wantErrors(f.T, got)
		for i, want := range []fdbpq.ItemState{
			fdbpq.Done, fdbpq.Ready, fdbpq.Leased, fdbpq.Ready, fdbpq.Done,
		} {
			r := &got[i]
			if r.State != want || r.Item.Job() != gets[i].ID || r.Item.Value != nil ||
				r.Item.PushedAt.IsZero() {
				f.Errorf("%d: got %v of %v in state %v with %d bytes; "+
					"want %v in state %v without a value", i, r.Err, r.Item.Job(), r.State,
					len(r.Item.Value), gets[i].ID, want)
			}
		}
		for _, i := range []int{0, 4} {
			wantEqual(f.T, "result", string(got[i].Found.Finished.Result), result)
		}
		if letter := got[1].Item.DeadLetter; letter == nil || got[1].Queue != "jobs-dead" {
			f.Errorf("got the dead letter %v in %q, want one in jobs-dead", letter, got[1].Queue)
		}
		wantEqual(f.T, "header", got[2].Item.Headers["A"][0], "b")
	})
}

// A job that has expired is not found, whether or not somebody has removed it yet: by a read that
// cannot, and then by an operation that does. A lease keeps it until it is over.
func TestGetOfExpired(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := f.setClock()
		q := f.queue("jobs")
		for _, state := range []fdbpq.ItemState{fdbpq.Ready, fdbpq.Delayed, fdbpq.Leased} {
			push := opPush(q, 1, "a")
			push.TTL = time.Minute
			if state == fdbpq.Delayed {
				push.Delay = time.Hour
			}
			job := f.done(push).Item.ID
			if state == fdbpq.Leased {
				f.leaseSome(q, 1, 2*time.Minute)
			}

			get := named(fdbpq.OpGet, q, job)
			seen := func(after time.Duration) error {
				r, err := kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]fdbpq.Result, error) {
					return fdbpq.ReadSome(r, []fdbpq.Op{get}, clock.now().Add(after), 1<<20)
				})
				wantError(f.T, err, nil)
				return r[0].Err
			}
			wantError(f.T, seen(59*time.Second), nil)
			if state == fdbpq.Leased {
				wantError(f.T, seen(119*time.Second), nil)
			} else {
				wantError(f.T, seen(time.Minute), fdbpq.ErrNotFound)
			}
			wantError(f.T, seen(2*time.Minute), fdbpq.ErrNotFound)

			clock.advance(2 * time.Minute)
			wantError(f.T, f.apply(get)[0].Err, fdbpq.ErrNotFound)
		}
	})
}
