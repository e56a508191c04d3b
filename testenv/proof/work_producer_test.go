package proof_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

// producer pushes jobs, and repeats pushes until it knows that they count. The message ids make that safe.
type producer struct {
	*shop
	line   *line
	random *rand.Rand
	queues *client.Client
}

// together is how many jobs are pushed at once, at most.
const together = 40

func (p *producer) run(produce func(p *producer, queue handle, jobs []int)) {
	p.queues = client.New(p.line.nc, client.WithTimeout(p.patience()))
	for n := 0; !p.over(); n++ {
		var jobs []int
		for range 1 + p.random.IntN(together) {
			jobs = append(jobs, p.add())
		}
		produce(p, queueOf(p.queues, workQueues[n%2]), jobs)
	}
}

func (p *producer) over() bool {
	select {
	case <-p.closing:
		return true
	default:
		return p.t.Failed() || p.calm && p.size() >= calmJobs
	}
}

// message is a job.
func jobMessage(n int) client.Message {
	return client.Message{Value: strconv.AppendInt(nil, int64(n), 10)}.With(client.MsgID(fmt.Sprint("job-", n)))
}

// itemOf is a job for one of the queues.
func itemOf(queue handle, n int) client.PushItem {
	item := client.PushItem{Message: jobMessage(n)}
	if !isFIFO(queue.name) {
		item.Priority = int64(n*7919) % 5
	}
	return item
}

// again notes that pushes are repeated, waits a little, and reports whether to do so.
func (p *producer) again(err error) bool {
	p.mu.Lock()
	p.count["pushes or batches repeated by the producer"]++
	p.mu.Unlock()
	<-time.After(10 * time.Millisecond)
	return !p.t.Failed()
}

// one pushes one after the other.
func (p *producer) one(queue handle, jobs []int) {
	for _, n := range jobs {
		for {
			item := itemOf(queue, n)
			ack, err := queue.push(context.Background(), item.Priority, item.Message)
			if err == nil {
				p.pushed(n, ack)
				break
			}
			if !p.again(err) {
				return
			}
		}
	}
}

// many pushes batches.
func (p *producer) many(queue handle, jobs []int) {
	for {
		var items []client.PushItem
		var messages []client.Message
		for _, n := range jobs {
			items, messages = append(items, itemOf(queue, n)), append(messages, jobMessage(n))
		}

		var results []client.PushResult
		var err error
		if isFIFO(queue.name) {
			results, err = queue.fifo.EnqueueMany(context.Background(), messages)
		} else {
			results, err = queue.jobs.PushMany(context.Background(), items)
		}

		var left []int
		for i, r := range results {
			if r.Err == nil {
				p.pushed(jobs[i], r.PushAck)
			} else {
				left = append(left, jobs[i])
			}
		}
		if jobs = left; err == nil || !p.again(err) {
			return
		}
	}
}

// async pushes with a Producer.
func (p *producer) async(queue handle, jobs []int) {
	q, err := queue.managed().NewProducer(client.ProducerOptions{MaxItems: choose(queue, books.Push, together/2, 0, 0)})
	must(p.t, err)
	for len(jobs) > 0 {
		var futures []*client.PushFuture
		for _, n := range jobs {
			item := itemOf(queue, n)
			f, err := q.PushAsync(context.Background(), item.Priority, item.Message)
			if err != nil {
				p.t.Error(err)
				return
			}
			futures = append(futures, f)
		}

		var left []int
		for i, f := range futures {
			ack, err := f.Wait(context.Background())
			if err == nil {
				p.pushed(jobs[i], ack)
				continue
			}
			left = append(left, jobs[i])
			if !p.again(err) {
				return
			}
		}
		jobs = left
	}
	must(p.t, q.Close(context.Background()))
}
