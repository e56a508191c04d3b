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
