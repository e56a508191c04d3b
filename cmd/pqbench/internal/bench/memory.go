package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// lasting is longer than the benchmark.
const lasting = time.Hour

// memory measures what a pop that waits, a queue in use and a leased item take in the memory of a
// service. Each has a service of its own, whose store keeps little in memory and whose garbage
// collector leaves little behind.
func (r *rig) memory(ctx context.Context, report *Report) error {
	if r.Memory == 0 {
		return nil
	}
	lease := subjects.PopOptions{Lease: true, AckWait: lasting}.Encode()
	kinds := []struct {
		name  string
		items bool // it needs as many items
		load  func(s *service, q *queue) load
		until func(s *service, n int) error
	}{
		{name: "waiting pop", load: func(_ *service, q *queue) load { return r.waiting(q) }, until: waiters},
		{name: "queue in use", load: func(s *service, q *queue) load {
			var pushes []string
			for i := range 2 * r.Memory {
				pushes = append(pushes, s.subject(fmt.Sprintf("%s-%d", queueName, i), "push"))
			}
			return r.asking(q.value, pushes...)
		}},
		{name: "leased item", items: true, load: func(_ *service, q *queue) load { return r.asking(lease, q.subject("pop.min")) }},
	}

	for i, kind := range kinds {
		r.Progress(i, len(kinds), "memory: "+kind.name)
		// As many again come first, so that what all share is there.
		measure := func() (err error) {
			s, err := r.startService(ctx, fmt.Sprintf("-memory-%d", i), "GOGC=10", "PQ_EMBEDDED_MEMTABLE=1048576", "PQ_EMBEDDED_CACHE=1048576")
			if err != nil {
				return err
			}
			defer s.end(&err)
			q := r.newQueue(s, queueName)
			if kind.items {
				if err := q.fill(ctx, 2*r.Memory); err != nil {
					return err
				}
			}

			w := &row{name: kind.name, load: kind.load(s, q), who: s.Process}
			var before int64
			for n := r.Memory; n <= 2*r.Memory; n += r.Memory {
				before = s.Used().Resident
				if err := r.run(ctx, w, limit{steps: r.Memory}); err != nil {
					return err
				}
				if kind.until != nil {
					if err := s.Await(ctx, func() error { return kind.until(s, n) }); err != nil {
						return err
					}
				}
			}
			if w.out.dry {
				return fmt.Errorf("%s: the queue was empty", w.name)
			}
			each := float64(s.Used().Resident-before) / float64(r.Memory)
			w.extra = append(w.extra, Figure{Name: "memory of each", Value: each, Unit: "B"})
			report.Rows = append(report.Rows, w.result(report.rate(rowEcho)))
			return nil
		}
		if err := measure(); err != nil {
			return err
		}
	}
	return nil
}

// waiting is a load of pops that wait until the service ends. Nobody reads the answers.
func (r *rig) waiting(q *queue) load {
	pop, options := q.subject("pop.min"), subjects.PopOptions{Expires: lasting}.Encode()
	return r.requests(func(nc *nats.Conn, _ int) error { return nc.PublishRequest(pop, nc.NewInbox(), options) })
}

// waiters returns an error unless so many pops wait.
func waiters(s *service, n int) error {
	response, err := http.Get(s.url + "/metrics")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	metrics, err := io.ReadAll(response.Body)
	if err == nil && !bytes.Contains(metrics, fmt.Appendf(nil, "\npq_waiters %d\n", n)) {
		err = fmt.Errorf("not %d pops wait yet", n)
	}
	return err
}
