package bench

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/process"
	"github.com/pqbridge/pqbridge/subjects"
)

// work has the requests of each operation on one queue of a service.
type work struct {
	push, popMin, popMax, peekMin, mixed []step
	pushOnce                             []step // with message ids
	lease, next                          []step
	pushBatch, popBatch, leaseBatch      []step

	grammar subjects.Grammar
	queue   string
}

const (
	// batchItems is the number of items in the requests for several.
	batchItems = 100
	// leaseTime is longer than any step.
	leaseTime = time.Minute
)

// newWork builds the requests. Pushes cycle through the priorities.
func newWork(s *service, queue string, payload, priorities int) (*work, error) {
	w := &work{grammar: s.grammar, queue: queue}
	value := newValue(payload)
	for priority := range priorities {
		subject, err := s.grammar.Build(subjects.Request{
			Kind: subjects.Priority, Verb: subjects.Push, Queue: queue,
			Priority: int64(priority), HasPriority: true,
		})
		if err != nil {
			return nil, err
		}
		w.push = append(w.push, step{subject: subject, payload: value})
		w.pushOnce = append(w.pushOnce, step{subject: subject, payload: value, once: true})
	}
	for verb, steps := range map[subjects.Verb]*[]step{
		subjects.PopMin: &w.popMin, subjects.PopMax: &w.popMax, subjects.PeekMin: &w.peekMin,
	} {
		subject, err := s.subject(queue, verb)
		if err != nil {
			return nil, err
		}
		*steps = []step{{subject: subject}}
	}
	var frames []byte
	for i := range batchItems {
		frames = subjects.AppendFrame(frames, subjects.Frame{Priority: int64(i % priorities), Value: value})
	}
	subject, err := s.subject(queue, subjects.PushBatch)
	if err != nil {
		return nil, err
	}
	w.pushBatch = []step{{subject: subject, payload: frames, items: batchItems}}
	lease := subjects.PopOptions{Lease: true, AckWait: leaseTime}
	with := func(o subjects.PopOptions, t talk) []step {
		return []step{{subject: w.popMin[0].subject, payload: o.Encode(), talk: t}}
	}
	w.lease, w.next = with(lease, acked), with(lease, chained)
	w.popBatch = with(subjects.PopOptions{Batch: batchItems, Frames: true}, batch)
	lease.Batch = batchItems
	w.leaseBatch = with(lease, batchAcked)
	for _, push := range w.push {
		w.mixed = append(w.mixed, push, w.popMin[0])
	}
	return w, nil
}

// newValue returns a value of that many bytes.
func newValue(payload int) []byte {
	value := make([]byte, payload)
	for i := range value {
		value[i] = byte('a' + i%26)
	}
	return value
}

// count returns the number of items in the queue.
func (r *rig) count(ctx context.Context, w *work) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	n, err := client.New(r.conn, client.WithGrammar(w.grammar)).PriorityQueue(w.queue).Len(ctx)
	return int(n), err
}

// fill pushes until the queue has n items. It measures nothing.
func (r *rig) fill(ctx context.Context, w *work, n int) error {
	have, err := r.count(ctx, w)
	if err != nil || have >= n {
		return err
	}
	_, err = r.load.run(ctx, w.push, limit{steps: n - have})
	return err
}

// tidy empties the queue if the store outlives the benchmark.
func (r *rig) tidy(ctx context.Context, w *work) error {
	if r.Pqbridge != "" && (r.cluster == nil || r.cluster.private()) {
		return nil
	}
	_, err := r.load.run(ctx, w.popMin, limit{steps: math.MaxInt})
	return err
}

// phase is one operation to measure.
type phase struct {
	name    string
	load    *load
	steps   []step
	who     user // whose processor time and memory it costs
	backlog bool // needs more items than it can pop in its time
	batch   int  // items of each step; its turn ends after as many items as a backlog has
}

// user uses processor time and memory.
type user interface{ Used() process.Usage }

// self is this process.
type self struct{}

func (self) Used() process.Usage { return process.UsedBy(os.Getpid()) }

// measured is a phase with its results so far.
type measured struct {
	phase
	users []user          // the service, the NATS server and, if there is one, fdbserver
	used  []process.Usage // by each of them while the phase ran
	all   process.Machine // that passed meanwhile
	out   outcome
}

func (r *rig) newMeasured(p phase) *measured {
	m := &measured{phase: p, users: []user{p.who, r.nats}, out: newOutcome()}
	if r.cluster != nil {
		m.users = append(m.users, r.cluster)
	}
	for range m.users {
		m.used = append(m.used, process.Usage{Known: true})
	}
	return m
}

// run runs the phase and adds what that used.
func (m *measured) run(ctx context.Context, lim limit) error {
	var before []process.Usage
	for _, u := range m.users {
		before = append(before, u.Used())
	}
	began := process.MachineTime()
	out, err := m.load.run(ctx, m.steps, lim)
	if err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	m.all.Add(began, process.MachineTime())
	m.out.append(out)
	for i, u := range m.users {
		m.used[i].Add(before[i], u.Used())
	}
	return nil
}

// takeTurns runs the jobs in turn, each prepared first and then run for that many
// steps, until each has run for Duration. Taking turns keeps a noisy machine from
// favouring one of them.
func (r *rig) takeTurns(ctx context.Context, steps int, jobs []job) ([]outcome, error) {
	outs := make([]outcome, len(jobs))
	for i := range outs {
		outs[i] = newOutcome()
	}
	for {
		least := time.Duration(math.MaxInt64)
		for i, job := range jobs {
			if err := job.prepare(ctx); err != nil {
				return nil, err
			}
			out, err := r.load.run(ctx, job.steps, limit{steps: steps})
			if err != nil {
				return nil, err
			}
			outs[i].append(out)
			least = min(least, outs[i].elapsed)
		}
		if least >= r.Duration {
			return outs, nil
		}
	}
}

// job is a load that takes turns with others.
type job struct {
	prepare func(context.Context) error
	steps   []step
}
