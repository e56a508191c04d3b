package proof_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// The load of TestJoins.
const (
	reports     = "reports" // the queue of joiners
	joinQueues  = 100       // of members; fewer in short runs
	joinMembers = 1_000     // of a joiner; fewer in short runs
	openJoins   = 32        // at once
	maxMembers  = 100       // of a lease

	joinPause = 20 * time.Second // between two faults, at most; less in short runs
	joinSlack = 5 * time.Second  // after a fault, which counts as part of it

	// After twice that, a request that waits has died with its bridge.
	joinHeartbeat = 500 * time.Millisecond
)

// A joiner runs once, after all its members, while bridges are killed and paused and their clocks
// are 5 s apart. There are -ops members or more, until each fault was there once. The log says how
// long after its last member a joiner was delivered: docs/measured.md has figures.
func TestJoins(t *testing.T) {
	seed := flags.firstSeed(t)
	for _, s := range append([]system{{"embedded-kill", startKill, 1}}, fdbSystems()...) {
		t.Run(s.name, func(t *testing.T) {
			s.run(t, seed, func(r *rig) {
				if r.skew > 0 {
					r.skew = wideSkew
				}
			}, func(r *rig) {
				j := &joinLoad{rig: r, queues: joinQueues, members: joinMembers, pause: joinPause}
				if flags.ops < shortRun {
					j.queues, j.members, j.pause, j.short = 4, 100, joinPause/20, true
				}
				j.run()
			})
		})
	}
}

// joinLoad is a system with joiners whose members are in many queues.
type joinLoad struct {
	*rig
	queues, members int
	pause           time.Duration
	short           bool // each fault once

	mu       sync.Mutex
	fans     []*joinFan
	acks     []time.Duration // that acknowledgements took
	breaking []breaking      // faults so far
}

// breaking is a fault.
type breaking struct {
	name     string
	from, to time.Time
}

// joinFan is a joiner with its members. The last of them is the guard of an OpenJoin.
type joinFan struct {
	id    string
	asked []bool        // the members whose end was asked for
	open  int           // how many others there are
	ended time.Time     // when the newest answer to that came
	ran   chan struct{} // closed when the joiner was delivered
	at    time.Time     // that was
	first bool          // its first delivery has come, which may be after the second
	done  time.Time     // when it was acknowledged
}

func (j *joinLoad) run() {
	var pushing, working sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	defer working.Wait()
	defer stop()

	j.chooseFaults()
	for n := range j.queues {
		c, name := j.clients[n%len(j.clients)], fmt.Sprint("members-", n)
		j.insist(c.caller, "settings", func(ctx context.Context) error {
			change := client.Settings{Next: []string{reports}}
			_, err := c.client.PriorityQueue(name).Configure(ctx, change)
			return err
		})
		working.Go(func() { j.work(ctx, c.caller, name, maxMembers, j.member) })
	}

	c := j.newCaller(clients, newLine(j.t, j.toNATS.url()))
	for range 2 { // in case that a bridge dies with the request of one
		working.Go(func() { j.work(ctx, c, reports, openJoins, j.joiner) })
	}

	for n := range openJoins {
		pushing.Go(func() {
			for f := j.begin(); f != nil; f = j.begin() {
				j.push(j.clients[n%len(j.clients)].caller, f)
			}
		})
	}
	pushed := make(chan struct{})
	go func() {
		pushing.Wait()
		close(pushed)
	}()
	j.breakThings(j.pause, func() bool {
		return isClosed(pushed) || j.short && len(j.breaking) >= len(j.faults)
	})
	<-pushed

	j.insist(c, "acknowledging all joiners", func(ctx context.Context) error {
		info, err := c.client.PriorityQueue(reports).Info(ctx)
		if err != nil {
			return err
		}
		if n := info.Ready + info.Leased + info.Delayed; n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	stop()
	working.Wait()
	c.line.close()
	j.tell()
	if !j.t.Failed() {
		ctx, db := j.shut(toClose)
		j.scan(ctx, db, 0)
	}
}

// insist makes a request until it succeeds, or until the test has failed.
func (j *joinLoad) insist(c *caller, what string, do func(ctx context.Context) error) {
	c.insist(what, func(ctx context.Context) error {
		if j.t.Failed() {
			return nil
		}
		return do(ctx)
	})
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// chooseFaults leaves kills and pauses of bridges, and has them note when they were.
func (j *joinLoad) chooseFaults() {
	ours := regexp.MustCompile(`bridge.*\(SIG(KILL|STOP)\)`)
	if j.short && !flags.all() { // histories have pauses
		ours = regexp.MustCompile(`bridge.*\(SIGKILL\)`)
	}
	j.faults = slices.DeleteFunc(j.faults, func(f fault) bool {
		return !ours.MatchString(f.name) || strings.Contains(f.name, "server")
	})

	for i, f := range j.faults {
		j.faults[i].strike = func() {
			from := time.Now()
			f.strike()
			j.mu.Lock()
			defer j.mu.Unlock()
			j.breaking = append(j.breaking, breaking{f.name, from, time.Now()})
		}
	}
}

// begin returns the next joiner, nil if there were enough.
func (j *joinLoad) begin() *joinFan {
	j.mu.Lock()
	defer j.mu.Unlock()
	enough := len(j.fans)*j.members >= flags.ops && len(j.breaking) >= len(j.faults)
	if enough || j.t.Failed() {
		return nil
	}
	if n := len(j.fans); n%100 == 99 {
		j.t.Logf("%d joiners in %v", n+1, time.Since(j.zero).Round(time.Second))
	}
	f := &joinFan{
		id:    fmt.Sprint(len(j.fans)), // until it is pushed
		asked: make([]bool, j.members+1),
		open:  j.members + 1,
		ran:   make(chan struct{}),
	}
	j.fans = append(j.fans, f)
	return f
}

// push pushes a joiner and its members, and waits until it has run.
func (j *joinLoad) push(c *caller, f *joinFan) {
	var join *client.OpenJoin
	name := f.id
	j.insist(c, "pushing a joiner", func(ctx context.Context) (err error) {
		join, err = c.client.PriorityQueue(reports).OpenJoin(ctx, time.Hour, 0,
			client.Message{Value: []byte(name)}, client.MsgID(name))
		return err
	})
	if j.t.Failed() {
		return
	}
	j.mu.Lock()
	f.id = join.ID
	j.mu.Unlock()

	for n := range j.queues {
		var items []client.PushItem
		for i := n; i < j.members; i += j.queues {
			value := fmt.Sprint(name, " ", i)
			m := client.Message{Value: []byte(value)}
			m = m.With(client.MsgID(value), client.Joiner(join.JoinerRef))
			items = append(items, client.PushItem{Message: m})
		}
		j.insist(c, "pushing members", func(ctx context.Context) error {
			_, err := c.client.PriorityQueue(fmt.Sprint("members-", n)).PushBatch(ctx, items)
			return err
		})
	}

	j.ask(f, j.members)
	j.insist(c, "removing the guard", func(ctx context.Context) error {
		if err := join.Close(ctx); !errors.Is(err, client.ErrNotFound) {
			return err
		}
		return nil // an attempt before has counted
	})
	j.answered(f)

	select {
	case <-f.ran:
	case <-time.After(patience):
		j.t.Errorf("the joiner %s does not run", name)
	}
}

// ask notes that a member is about to end.
func (j *joinLoad) ask(f *joinFan, member int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !f.asked[member] {
		f.asked[member] = true
		f.open--
	}
}

// answered notes that a member has ended.
func (j *joinLoad) answered(f *joinFan) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f.ended = time.Now()
}

// work leases items, checks them, and acknowledges them.
func (j *joinLoad) work(ctx context.Context, c *caller, queue string, most int,
	check func(d *client.Delivery, asked time.Time) (settled func(err error))) {
	q := c.client.PriorityQueue(queue)
	for ctx.Err() == nil && !j.t.Failed() {
		asked := time.Now()
		leased, err := q.LeaseBatch(ctx, most, client.AckWait(workLease))
		if errors.Is(err, client.ErrEmpty) {
			var one *client.Delivery
			one, err = q.Lease(ctx, client.AckWait(workLease), client.Expires(time.Minute),
				client.IdleHeartbeat(joinHeartbeat))
			if err == nil {
				leased = append(leased, one)
			}
		}
		if err != nil {
			<-time.After(awaitAgain)
		}
		settled := map[*client.Delivery]func(error){}
		for _, d := range leased {
			settled[d] = check(d, asked)
		}

		for len(leased) > 0 && ctx.Err() == nil {
			begun := time.Now()
			errs := c.client.AckAll(ctx, leased...)
			j.took(time.Since(begun))
			var again []*client.Delivery
			for i, d := range leased {
				var err error
				if errs != nil {
					err = errs[i]
				}
				if err == nil || errors.Is(err, client.ErrLeaseLost) {
					settled[d](err)
				} else {
					again = append(again, d)
				}
			}
			leased = again
		}
	}
}

// took notes how long an acknowledgement took.
func (j *joinLoad) took(d time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.acks = append(j.acks, d)
}

// member checks a member that was delivered.
func (j *joinLoad) member(d *client.Delivery, asked time.Time) (settled func(error)) {
	var n, member int
	_, err := fmt.Sscanf(string(d.Value), "%d %d", &n, &member)
	must(j.t, err)
	j.mu.Lock()
	f := j.fans[n]
	j.mu.Unlock()
	if isClosed(f.ran) && asked.After(f.at) {
		j.t.Errorf("a member after its joiner: %s", d.Value)
	}
	j.ask(f, member)
	return func(error) { j.answered(f) }
}

// joiner checks a joiner that was delivered.
func (j *joinLoad) joiner(d *client.Delivery, asked time.Time) (settled func(error)) {
	var n int
	_, err := fmt.Sscan(string(d.Value), &n)
	must(j.t, err)
	j.mu.Lock()
	defer j.mu.Unlock()
	f, want := j.fans[n], client.Joined{Done: int64(j.members), Gone: 1}
	before := isClosed(f.ran)

	switch {
	case d.ID != f.id:
		j.t.Errorf("the joiner %d was pushed twice", n)
	case d.Joined == nil || *d.Joined != want:
		j.t.Errorf("the joiner %d runs with %+v, want %+v", n, d.Joined, want)
	case f.open > 0:
		j.t.Errorf("the joiner %d runs before %d members have ended", n, f.open)
	case f.first && d.Deliveries == 1:
		j.t.Errorf("the joiner %d runs twice", n)
	case !f.done.IsZero() && asked.After(f.done):
		j.t.Errorf("the joiner %d runs again after it was acknowledged", n)
	case before && d.Deliveries == 1:
		j.t.Logf("the joiner %d: its first delivery came %v after its request, behind another",
			n, time.Since(asked))
	case !before:
		f.at = time.Now()
		close(f.ran)
	}
	f.first = f.first || d.Deliveries == 1

	return func(err error) {
		j.mu.Lock()
		defer j.mu.Unlock()
		if err == nil && f.done.IsZero() {
			f.done = time.Now()
		}
	}
}

// tell logs how long after their last members joiners were delivered, those beside which nothing
// was broken, and others by the first fault that was; and how long acknowledgements took, which
// says how busy the system was.
func (j *joinLoad) tell() {
	waits := map[string][]time.Duration{"acknowledgements": j.acks}
	for _, f := range j.fans {
		beside := "no fault"
		for _, b := range slices.Backward(j.breaking) {
			if f.ended.Before(b.to.Add(joinSlack)) && f.at.After(b.from) {
				beside = b.name
			}
		}
		beside = "joiners beside " + beside
		waits[beside] = append(waits[beside], max(0, f.at.Sub(f.ended)))
	}

	j.t.Logf("%d joiners, each with %d members in %d queues; clocks wrong by up to %v",
		len(j.fans), j.members, j.queues, j.skew)
	for what, list := range waits {
		slices.Sort(list)
		at := func(part float64) time.Duration {
			return list[int(part*float64(len(list)-1))].Round(time.Millisecond / 10)
		}
		j.t.Logf("%s: %d, a median of %v, 99 %%: %v, at most %v",
			what, len(list), at(0.5), at(0.99), at(1))
	}
}
