package proof_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
)

const (
	watchers  = 3
	watchTime = 2 * time.Second // that one of them waits for a job, at most
)

// resultOf is what the work returns for a job.
func resultOf(n int) []byte { return strconv.AppendInt(nil, int64(n), 10) }

// watchJobs waits for jobs that were pushed, until producers have ended, and checks what it is
// told.
func (s *shop) watchJobs(queues *client.Client, random *rand.Rand) {
	for {
		select {
		case <-s.closing:
			return
		case <-time.After(5 * time.Millisecond):
		}
		if s.t.Failed() {
			return
		}

		n, j := s.someJob(random)
		if j.id == "" {
			continue
		}
		wait := time.Duration(random.Int64N(int64(watchTime)))
		ctx, cancel := context.WithTimeout(context.Background(), wait+answerTime)
		r, err := queueOf(queues, j.queue).Result(ctx, j.id, client.Wait(wait))
		cancel()
		s.told(n, r, err)
	}
}

// someJob returns a job, most often one of the last; it has no id if it is not known to be pushed.
func (l *ledger) someJob(random *rand.Rand) (int, job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.jobs) == 0 {
		return 0, job{}
	}

	n := random.IntN(len(l.jobs))
	if random.IntN(4) > 0 {
		n = max(n, len(l.jobs)-1-random.IntN(backlog))
	}
	if !l.jobs[n].pushed {
		return n, job{}
	}
	return n, l.jobs[n]
}

// told checks what a client was told of a job.
func (l *ledger) told(n int, r client.JobResult, err error) {
	dies := planOf(n) == failAlways || planOf(n) == drop
	switch {
	case errors.Is(err, client.ErrNotFound):
		l.violation("job %d is found nowhere: %v", n, err)
	case err != nil:
		l.tell("waits without an answer")
	case r.State == client.Done && (dies || !bytes.Equal(r.Value, resultOf(n))),
		r.State == client.Dead && !dies:
		l.violation("job %d with plan %d is said to be %s: %q", n, planOf(n), r.State, r.Value)
	default:
		l.tell("jobs said to be " + string(r.State))
	}
}

// finished notes a job that is done in the end.
func (l *ledger) finished(i *fdbpq.Browsed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.numberOf(i.Message.Value)
	if n < 0 {
		return
	}

	if j := &l.jobs[n]; j.kept || !bytes.Equal(i.Finished.Result, resultOf(n)) {
		l.problem("job %d is done with the result %q: %+v", n, i.Finished.Result, *j)
	} else {
		j.kept = true
	}
}
