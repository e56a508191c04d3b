package proof_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
)

// The load of TestWork.
const (
	maxDeliver  = 25  // many, because deliveries that reach nobody count
	backlog     = 400 // jobs that wait for their first delivery, at most
	workLease   = 2 * time.Second
	longestWork = 2 * workLease   // so that it shows if the lease is not extended
	faultPause  = 2 * time.Second // between two faults, at most; less in short runs
)

// Workers do every job that producers push, and idempotent work once, while bridges, NATS servers
// and connections are killed. With -duration each system runs for that long, else until each fault
// was there once.
func TestWork(t *testing.T) {
	seed := flags.firstSeed(t)
	onFDB := firstFDB()
	if flags.all() {
		onFDB = fdbSystems()
	}

	for _, s := range append([]system{{"embedded-kill", startKill, 1}}, onFDB...) {
		t.Run(s.name, func(t *testing.T) {
			s.run(t, seed, killNATS, func(r *rig) {
				l := &ledger{
					room:  make(chan struct{}, backlog),
					skew:  2 * r.skew,
					count: map[string]int{},
				}

				l.short = flags.duration == 0
				defer func() { t.Log(l) }()
				(&shop{rig: r, ledger: l, closing: make(chan struct{})}).run()
			})
		})
	}
}

// killNATS puts a NATS server that can be killed in the place of the rig's own.
func killNATS(r *rig) {
	r.strangers = false
	r.killNATS("")
}

// killNATS does so; the server has JetStream if there is a folder for it.
func (r *rig) killNATS(storeDir string) {
	url := r.env.NATS.URL()
	r.env.NATS.Stop()
	s := newService(r.t, serviceConfig{Serve: url, StoreDir: storeDir, Strangers: r.strangers},
		func() clock { return clock{} })

	r.faults[0] = fault{"NATS server killed (SIGKILL)", func() {
		s.kill()
		s.start()
	}}
}

// shop is a system with producers and workers.
type shop struct {
	*rig
	*ledger
	closing chan struct{} // closed when producers are to end
	crews   []*crew
	running sync.WaitGroup
}

// workQueues are a priority queue and a FIFO queue.
var workQueues = []string{"work", "fifo-work"}

func (s *shop) run() {
	change := client.Settings{
		MaxDeliver: maxDeliver,
		Backoff:    []time.Duration{10 * time.Millisecond, 20 * time.Millisecond},
		// Producers repeat pushes until they count, even if they were suspended meanwhile.
		DuplicateWindow: 24 * time.Hour,
		Keep:            keepFor,
		KeepItems:       1e9,
	}

	c := s.clients[0]
	// Each queue has a crew that works on four jobs at once, and one that works on two with longer
	// leases.
	for _, queue := range workQueues {
		c.insist("settings", func(ctx context.Context) error {
			_, err := queueOf(c.client, queue).Configure(ctx, change)
			return err
		})
		for _, o := range []client.WorkerOptions{
			{Concurrency: 4, AckWait: workLease},
			{Concurrency: 2, AckWait: workLease + workLease/2},
		} {
			o.Logger = slog.New(slog.DiscardHandler)
			s.crews = append(s.crews, newCrew(s, queue, o))
		}
	}

	for _, push := range []pushing{(*producer).one, (*producer).many, (*producer).async} {
		p := &producer{shop: s, random: rand.New(rand.NewPCG(s.random.Uint64(), 7))}
		p.queues = client.New(newLine(s.t, s.toNATS.url()).nc, client.WithTimeout(answerTime))
		s.running.Go(func() { p.run(push) })
	}

	for range watchers {
		random := rand.New(rand.NewPCG(s.random.Uint64(), 11))
		queues := client.New(newLine(s.t, s.toNATS.url()).nc, client.WithTimeout(answerTime))
		s.running.Go(func() { s.watchJobs(queues, random) })
	}

	// Things break while producers push and crews work. Then everything has to be done.
	s.breakAll()
	close(s.closing)
	s.running.Wait() // all jobs are pushed

	if s.drained() {
		for _, c := range s.crews {
			c.stop() // all of them at once
			if s.short {
				c.kill() // without waiting for more jobs
			}
		}

		for _, c := range s.crews {
			c.end()
		}

		ctx, db := s.shut(patience)
		for _, queue := range workQueues {
			must(s.t, empty(ctx, db, queue+"-dead", s.dead))
			must(s.t, eachDone(ctx, db, queue, s.finished))
		}

		s.scan(ctx, db, 0)
		for _, problem := range s.balance() {
			s.t.Error(problem)
		}
	}
}

// breakAll makes faults, until the time is over.
func (s *shop) breakAll() {
	s.faults = append(
		s.faults,
		fault{
			"worker stopped and another started",
			func() { s.crews[s.random.IntN(len(s.crews))].restart() },
		},
		fault{
			"connection of a worker closed",
			func() { s.crews[s.random.IntN(len(s.crews))].cutOff() },
		},
	)

	pause := faultPause
	if s.short { // histories have it
		pause /= 10
		s.faults = slices.DeleteFunc(s.faults,
			func(f fault) bool { return strings.Contains(f.name, "SIGSTOP") })
	}

	begin := time.Now()
	s.breakThings(pause, func() bool {
		if s.struck > 0 && s.struck%(20*len(s.faults)) == 0 {
			s.t.Logf("after %v: %v", time.Since(begin).Round(time.Second), s)
		}

		over := s.struck >= len(s.faults)
		return s.broken() || over && (s.short || time.Since(begin) > flags.duration)
	})
}

// drained waits until nothing is left in the queues, as long as that gets less.
func (s *shop) drained() bool {
	deadline, least := time.Now().Add(patience), int64(math.MaxInt64)
	for !s.t.Failed() {
		left, err := s.left()
		switch {
		case err == nil && left == 0:
			return true
		case err == nil && left < least:
			deadline, least = time.Now().Add(patience), left
		case time.Now().After(deadline):
			s.t.Errorf("%d jobs are left, %v\n%v", left, err, s)
		}

		<-time.After(20 * time.Millisecond)
	}

	return false
}

// left returns how many jobs are in the queues, in any state.
func (s *shop) left() (n int64, err error) {
	for _, queue := range workQueues {
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		info, err := queueOf(s.clients[0].client, queue).Info(ctx)
		cancel()
		if err != nil {
			return n, err
		}

		n += info.Ready + info.Leased + info.Delayed
	}
	return n, nil
}

// crew is a worker, and others that take its place.
type crew struct {
	shop  *shop
	queue string
	o     client.WorkerOptions

	nc     *nats.Conn
	worker *client.Worker
	stop   context.CancelFunc
	done   chan error
}

func newCrew(s *shop, queue string, o client.WorkerOptions) *crew {
	c := &crew{shop: s, queue: queue, o: o}
	c.start()

	s.t.Cleanup(func() { // if the test has failed
		c.nc.Close()
		c.kill()
		<-c.done
	})

	return c
}

func (c *crew) start() {
	for { // the server may just have been killed
		nc, err := nats.Connect(c.shop.toNATS.url(), nats.MaxReconnects(-1),
			nats.ReconnectWait(5*time.Millisecond), nats.ReconnectJitter(0, 0),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err == nil {
			c.nc = nc
			break
		}

		<-time.After(5 * time.Millisecond)
	}

	queues := client.New(c.nc, client.WithTimeout(answerTime))
	var err error
	c.worker, err = queueOf(queues, c.queue).NewWorker(c.shop.work, c.o)
	must(c.shop.t, err)

	c.done = make(chan error, 1)
	var ctx context.Context
	ctx, c.stop = context.WithCancel(context.Background())
	go func(w *client.Worker, done chan error) { done <- w.Run(ctx) }(c.worker, c.done)
}

// kill ends the jobs under way.
func (c *crew) kill() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.worker.Shutdown(ctx) // has no time
}

// end waits for the end of the worker, which was told to stop.
func (c *crew) end() {
	if err := c.outcome(); err != nil {
		c.shop.violation("the end of a worker: %v", err)
	}
}

// outcome waits for the end of the worker, which was told to stop, and returns the error of Run.
func (c *crew) outcome() error {
	c.stop()
	err := <-c.done
	c.done <- nil
	c.nc.Close()
	return err
}

// restart ends the worker and the jobs under way, and starts another. A worker that has no time
// cannot settle its jobs while bridges or NATS start again. They come back.
func (c *crew) restart() {
	c.kill()
	if err := c.outcome(); err != nil && !errors.Is(err, client.ErrUnsettled) {
		c.shop.violation("the end of a worker: %v", err)
	}

	c.start()
}

// cutOff is the end of the worker that nobody expected.
func (c *crew) cutOff() {
	c.nc.Close()
	if err := <-c.done; !errors.Is(err, nats.ErrConnectionClosed) {
		c.shop.violation("a worker without a connection ended with %v", err)
	}

	c.start()
}
