package proof_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects/schedule"
)

// Each message of a stream that a queue draws from, and each time of a schedule, becomes one item,
// in order, while bridges, NATS servers, stores and connections break and consumers take some. With
// -duration each system runs for that long, else until each fault was there.
func TestInflow(t *testing.T) {
	seed := flags.firstSeed(t)
	for _, s := range some(systems(), "mem-faults") {
		t.Run(s.name, func(t *testing.T) {
			s.run(t, seed, func(r *rig) { r.killNATS(t.TempDir()) }, func(r *rig) {
				f := &inflow{
					rig:          r,
					origins:      newOrigins(),
					closing:      make(chan struct{}),
					acknowledged: map[uint64]bool{},
					left:         map[string]bool{},
				}
				f.run()
			})
		})
	}
}

// inflow is a system with a stream that a queue draws from, and schedules.
type inflow struct {
	*rig
	*origins
	js           jetstream.JetStream
	closing      chan struct{} // closed when nothing more is to be published
	acknowledged map[uint64]bool
	left         map[string]bool // ids of items that were in the queues in the end
}

// The queues, and how messages and items are spread over priorities.
const (
	drawnQueue       = "drawn"
	scheduledQueue   = "scheduled"
	inflowPriorities = 3
	inflowSchedules  = 20
)

func (f *inflow) run() {
	c := f.clients[0]
	var err error
	f.js, err = jetstream.New(newLine(f.t, f.toNATS.url()).nc,
		jetstream.WithDefaultTimeout(time.Second))
	must(f.t, err)

	retention := []jetstream.RetentionPolicy{
		jetstream.LimitsPolicy,
		jetstream.WorkQueuePolicy,
		jetstream.InterestPolicy,
	}[f.random.IntN(3)]

	f.t.Logf("a stream with %v; the bridges are strangers: %v", retention, f.strangers)
	stream := jetstream.StreamConfig{
		Name:      "S",
		Subjects:  []string{"events.*"},
		Retention: retention,
	}

	c.insist("creating the stream", func(ctx context.Context) error {
		_, err := f.js.CreateOrUpdateStream(ctx, stream)
		return err
	})

	drawn, scheduled := c.client.PriorityQueue(drawnQueue), c.client.PriorityQueue(scheduledQueue)
	c.insist("setting the source", func(ctx context.Context) error {
		_, err := drawn.Configure(ctx,
			client.Settings{Source: `{"stream":"S","priority":{"header":"X-Priority"}}`})
		return err
	})

	for _, queue := range []*client.Queue{drawn, scheduled} {
		c.insist("keeping jobs", func(ctx context.Context) error {
			_, err := queue.Configure(ctx, client.Settings{Keep: keepFor, KeepItems: 1e9})
			return err
		})
	}

	for i := range inflowSchedules {
		c.insist("setting a schedule", func(ctx context.Context) error {
			_, err := scheduled.SetSchedule(ctx, client.Schedule{
				ID:       fmt.Sprint(i),
				Every:    schedule.Duration(time.Second + time.Duration(i)*10*time.Millisecond),
				Priority: int64(i % inflowPriorities),
				IfMissed: schedule.All,
			})
			return err
		})
	}

	// Before it, a stream with interest keeps nothing.
	c.insist("waiting for the consumer", func(ctx context.Context) error {
		s, err := f.js.Stream(ctx, "S")
		if err == nil && s.CachedInfo().State.Consumers == 0 {
			err = fmt.Errorf("there is none")
		}

		return err
	})

	var running sync.WaitGroup
	running.Go(f.publish)

	for i, queue := range []string{drawnQueue, scheduledQueue, drawnQueue, scheduledQueue} {
		c, random := f.clients[1+i], rand.New(rand.NewPCG(f.random.Uint64(), 9))
		running.Go(func() { f.consume(c, c.client.PriorityQueue(queue), random) })
	}

	begin := time.Now()
	f.breakThings(400*time.Millisecond, func() bool { // each was there, and the time is over
		over := time.Since(begin) > max(flags.duration, shortInflow)
		return over && f.struck >= len(f.faults) && f.confirmed() > 0
	})

	close(f.closing)
	running.Wait()
	var last uint64

	c.insist("drawing all messages", func(ctx context.Context) error {
		s, err := f.js.Stream(ctx, "S")
		if err != nil {
			return err
		}

		last = s.CachedInfo().State.LastSeq
		info, err := drawn.Info(ctx)
		if err == nil && (info.Source == nil || info.Source.Sequence < last) {
			err = fmt.Errorf("the source is at %v of %d", info.Source, last)
		}

		return err
	})

	f.returned(drawn)
	f.returned(scheduled)

	if !f.t.Failed() {
		f.check(last)
	}
}

// publish publishes messages, and publishes a message again if nobody knows whether the stream has
// it.
func (f *inflow) publish() {
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	var left []int

	for n := 0; ; {
		select {
		case <-f.closing:
			return
		case <-pause.C:
		}

		for len(left) < 20 {
			left = append(left, n)
			n++
		}

		for len(left) > 0 {
			m := nats.NewMsg(fmt.Sprintf("events.%d", left[0]))
			m.Data = strconv.AppendInt(nil, int64(left[0]), 10)
			m.Header.Set("X-Priority", strconv.Itoa(left[0]%inflowPriorities))
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			ack, err := f.js.PublishMsg(ctx, m, jetstream.WithMsgID(string(m.Data)))
			cancel()
			if err != nil {
				break
			}

			f.acknowledged[ack.Sequence] = true
			left = left[1:]
		}
	}
}

// shortInflow is how long a short test lasts at least, so that schedules fire.
const shortInflow = 2500 * time.Millisecond

// check ends the system and looks at its store.
func (f *inflow) check(last uint64) {
	ctx, db := f.shut(patience)
	order := map[int64]uint64{}

	f.each(ctx, db, drawnQueue, func(item *fdbpq.Item) {
		var sequence uint64
		if _, err := fmt.Sscanf(originOf(item.Headers), "S %d", &sequence); err != nil {
			f.t.Errorf("item %v: %v", item.ID, err)
		}
		if sequence < order[item.ID.Priority] {
			f.t.Errorf("message %d comes after %d", sequence, order[item.ID.Priority])
		}

		order[item.ID.Priority] = sequence
	})

	f.each(ctx, db, scheduledQueue, func(*fdbpq.Item) {})
	f.checkDone(ctx, db)
	f.scan(ctx, db, 0)

	drawn, fired := 0, map[string][]time.Time{}
	for origin := range f.items {
		name, rest, _ := strings.Cut(origin, " ")
		if name == "S" {
			drawn++
			continue
		}

		at, err := time.Parse(time.RFC3339Nano, rest)
		must(f.t, err)
		fired[name] = append(fired[name], at)
	}

	for sequence := uint64(1); sequence <= last; sequence++ {
		if f.items[fmt.Sprint("S ", sequence)] == "" {
			f.t.Errorf("message %d of %d is no item", sequence, last)
		}
	}

	for sequence := range f.acknowledged {
		if sequence > last {
			f.t.Errorf("message %d was acknowledged, and the stream ends with %d", sequence, last)
		}
	}
	if drawn != int(last) || last == 0 || len(f.settled) == 0 {
		f.t.Errorf("%d messages of %d were drawn, and %d items acknowledged",
			drawn, last, len(f.settled))
	}

	q, err := target(keyspace(), scheduledQueue)
	must(f.t, err)
	results, err := kv.ReadTransact(ctx, db, func(r kv.Reader) ([]fdbpq.Result, error) {
		return fdbpq.Read(r, []fdbpq.Op{{Kind: fdbpq.OpSchedules, Queue: q}})
	})
	must(f.t, err)

	if n := len(results[0].Records); n != inflowSchedules {
		f.t.Errorf("%d schedules, want %d", n, inflowSchedules)
	}

	for _, record := range results[0].Records {
		s, err := schedule.Parse(record.Value)
		must(f.t, err)
		times := fired[s.ID]
		slices.SortFunc(times, time.Time.Compare)

		if s.Fired == 0 || s.Fired != int64(len(times)) || s.Skipped != 0 {
			f.t.Errorf("schedule %s fired %d times, skipped %d, and there are %d items",
				s.ID, s.Fired, s.Skipped, len(times))
		}

		for i, at := range times {
			if want := s.Since.Add(time.Duration(i+1) * time.Duration(s.Every)); !at.Equal(want) {
				f.t.Errorf("schedule %s: item %d is for %v, want %v", s.ID, i, at, want)
			}
		}
	}

	f.t.Logf("%d messages, %d items of schedules, %d items acknowledged; again: %s",
		last, len(f.items)-drawn, len(f.settled), f.again())
}

// each removes all items of a queue, in their order, and records what they come from.
func (f *inflow) each(
	ctx context.Context, db kv.Database, queue string, tell func(item *fdbpq.Item),
) {
	must(f.t, empty(ctx, db, queue, func(item *fdbpq.Item) {
		if err := f.saw(item.Headers, item.ID.String(), len(f.settled)); err != nil {
			f.t.Errorf("queue %s: %v", queue, err)
		}
		f.left[item.ID.String()] = true
		tell(item)
	}))
}

// checkDone checks that all items whose acknowledgement was confirmed are kept, with their results,
// and that none of the kept ones was in a queue.
func (f *inflow) checkDone(ctx context.Context, db kv.Database) {
	done := map[string]bool{}
	for _, queue := range []string{drawnQueue, scheduledQueue} {
		must(f.t, eachDone(ctx, db, queue, func(i *fdbpq.Browsed) {
			id, origin := i.Job().String(), originOf(i.Headers)
			if err := f.saw(i.Headers, id, 0); err != nil {
				f.t.Errorf("done in queue %s: %v", queue, err)
			}
			if f.left[id] || string(i.Finished.Result) != origin {
				f.t.Errorf("%s is done with the result %q, and still there: %t",
					origin, i.Finished.Result, f.left[id])
			}
			done[id] = true
		}))
	}

	for id := range f.settled {
		if !done[id] {
			f.t.Errorf("item %s was acknowledged, and is not kept", id)
		}
	}
}
