package bridge_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// crowd has many waits at once that race the ends of their jobs.
type crowd struct {
	t      *testing.T
	e      *testenv.Env
	ahead  *testenv.Bridge // whose clock is clockAhead
	client *client.Client
	q      *client.Queue
	random *rand.Rand

	mu    sync.Mutex
	ended map[string]time.Time // when a job was confirmed to have ended
	late  []time.Duration      // of waits that were answered by the request that waited
	again int                  // requests that were repeated, because nothing came
}

const clockAhead = time.Hour

// Every wait gets the outcome of its own job, whether it begins before or after the job ends, while
// the clocks of two bridges are an hour apart, and a third one is frozen or killed.
func TestManyWaits(t *testing.T) {
	harness.OnlyNightly(t)
	eachShared(t, func(t *testing.T, engine testenv.Engine) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		c := &crowd{
			t: t, random: rand.New(rand.NewPCG(seed, 0)), ended: map[string]time.Time{},
			e: testenv.New(t, testenv.Options{Engine: engine}),
		}
		c.ahead = c.e.StartBridge(func(o *bridge.Options) {
			o.Now = func() time.Time { return time.Now().Add(clockAhead) }
		})
		waitForPeers(t, c.e.Bridge, c.ahead)
		c.client = client.New(c.e.Conn)
		c.q = c.client.PriorityQueue("jobs")

		// The bridge whose clock is ahead would spare nothing of what the other one finishes.
		_, err := c.q.Configure(t.Context(), client.Settings{KeepItems: settings.MaxCount})
		must(t, err)

		const rounds, jobs = 200, 5000
		for round := range rounds {
			quiet := round%2 == 0
			c.round(jobs, quiet)
			if quiet { // otherwise waits of the bridge that fails are lost with it
				c.report(round)
			}
			c.late = c.late[:0]
		}
		checkStore(t, c.e)
	})
}

// report logs how late the waits of a round were.
func (c *crowd) report(round int) {
	slices.Sort(c.late)
	at := func(share float64) time.Duration { return c.late[int(share*float64(len(c.late)-1))] }
	c.t.Logf("round %d: %d waits, late by %v at most, 99 %% by %v, half by %v", round, len(c.late),
		at(1), at(0.99), at(0.5))
}

// round pushes jobs, waits for all of them, and ends them meanwhile. Unless it is quiet, a bridge
// fails during that.
func (c *crowd) round(jobs int, quiet bool) {
	ids := c.push(jobs)
	over, cancel := context.WithCancel(context.Background())
	var waits sync.WaitGroup
	for i, id := range ids {
		waits.Go(func() { c.await(id, byte(i)) })
	}

	var others sync.WaitGroup
	others.Go(func() { c.end(over, ids) })
	if !quiet {
		frozen := c.random.IntN(2) == 0
		others.Go(func() { c.failBridge(frozen) })
	}
	waits.Wait()
	cancel()
	others.Wait()
	clear(c.ended)
}

// push pushes jobs whose values are one byte, by their number.
func (c *crowd) push(jobs int) (ids []string) {
	for len(ids) < jobs {
		items := make([]client.PushItem, min(100, jobs-len(ids)))
		for i := range items {
			items[i].Message.Value = []byte{byte(len(ids) + i)}
			items[i].Message.Headers = map[string][]string{subjects.HeaderKeep: {"10h"}}
		}
		results, err := c.q.PushMany(context.Background(), items)
		must(c.t, err)
		for i := range results {
			must(c.t, results[i].Err)
			ids = append(ids, results[i].ID)
		}
	}
	return ids
}

// failBridge starts a bridge, which is killed, or frozen and killed later.
func (c *crowd) failBridge(frozen bool) {
	w := newWire(c.t, c.e)
	b := c.e.StartBridge(w.use)
	waitForPeers(c.t, c.e.Bridge, c.ahead, b)
	if frozen {
		w.freeze()
		<-time.After(time.Second)
	}
	w.kill()
	_ = b.Stop() // it may be dead
}

// end leases jobs and ends them, with their values twice as the results, until that is over. What a
// killed bridge has leased to nobody is released: by one of the clocks it is leased for hours.
func (c *crowd) end(over context.Context, ids []string) {
	for over.Err() == nil {
		ctx, cancel := context.WithTimeout(over, 5*time.Second)
		leased, err := c.q.LeaseBatch(ctx, 100, client.AckWait(2*clockAhead))
		if errors.Is(err, client.ErrEmpty) {
			c.release(ctx, ids)
		}
		for _, d := range leased {
			d.SetResult(slices.Repeat(d.Value, 2), "")
		}
		errs := c.client.AckAll(ctx, leased...)
		cancel()

		c.mu.Lock()
		for i, d := range leased {
			if errs == nil || errs[i] == nil {
				c.ended[d.ID] = time.Now()
			}
		}
		c.mu.Unlock()
	}
}

// release ends the leases of the jobs that have not ended.
func (c *crowd) release(ctx context.Context, ids []string) {
	c.mu.Lock()
	ended := func(id string) bool { return !c.ended[id].IsZero() }
	left := slices.DeleteFunc(slices.Clone(ids), ended)
	c.mu.Unlock()
	for _, id := range left {
		_ = c.q.Release(ctx, id) // it may have ended
	}
}

// await waits for a job, whose value is one byte.
func (c *crowd) await(id string, value byte) {
	ask := &nats.Msg{Subject: "pq.jobs.result", Data: []byte(waitFor(id, "8s"))}
	for tries := 0; ; tries++ {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		m, err := c.e.Conn.RequestMsgWithContext(ctx, ask)
		cancel()
		if err == nil {
			err = replyError(m.Header)
		}
		if r := new(refusal); errors.As(err, &r) && r.Code != subjects.CodeUnavailable {
			c.t.Errorf("job %s: %v", id, err)
			return
		}

		answered := time.Now()
		if err != nil || m.Header.Get(subjects.HeaderState) != "done" {
			c.mu.Lock()
			c.again++
			c.mu.Unlock()
			<-time.After(10 * time.Millisecond) // there may be no responders
			continue
		}
		if string(m.Data) != string([]byte{value, value}) || m.Header.Get(subjects.HeaderID) != id {
			c.t.Errorf("job %s: got the result %x of %v, want %x twice", id, m.Data,
				m.Header[subjects.HeaderID], value)
		}
		c.mu.Lock()
		if ended, ok := c.ended[id]; !ok { // before the acknowledgement is
			c.late = append(c.late, 0)
		} else if tries == 0 {
			c.late = append(c.late, answered.Sub(ended))
		}
		c.mu.Unlock()
		return
	}
}
