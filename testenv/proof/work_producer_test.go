package proof_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/pqbridge/pqbridge/client"
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

func (p *producer) run(produce func(p *producer, fifo bool, jobs []int)) {
	p.queues = client.New(p.line.nc, client.WithTimeout(p.patience()))
	for fifo := false; !p.over(); fifo = !fifo {
		var jobs []int
		for range 1 + p.random.IntN(together) {
			jobs = append(jobs, p.add())
		}
		produce(p, fifo, jobs)
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

func priorityOf(n int) int64 { return int64(n*7919) % 5 }

// again notes that pushes are repeated, waits a little, and reports whether to do so.
func (p *producer) again(err error) bool {
	p.mu.Lock()
	p.count["pushes or batches repeated by the producer"]++
	p.mu.Unlock()
	<-time.After(10 * time.Millisecond)
	return !p.t.Failed()
}

// one pushes one after the other.
func (p *producer) one(fifo bool, jobs []int) {
	for _, n := range jobs {
		for {
			var ack client.PushAck
			var err error
			if fifo {
				ack, err = p.queues.Queue(workQueues[1]).EnqueueMsg(context.Background(), jobMessage(n))
			} else {
				ack, err = p.queues.PriorityQueue(workQueues[0]).PushMsg(context.Background(), priorityOf(n), jobMessage(n))
			}
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
func (p *producer) many(fifo bool, jobs []int) {
	for {
		var results []client.PushResult
		var err error
		if fifo {
			var items []client.Message
			for _, n := range jobs {
				items = append(items, jobMessage(n))
			}
			results, err = p.queues.Queue(workQueues[1]).EnqueueMany(context.Background(), items)
		} else {
			var items []client.PushItem
			for _, n := range jobs {
				items = append(items, client.PushItem{Priority: priorityOf(n), Message: jobMessage(n)})
			}
			results, err = p.queues.PriorityQueue(workQueues[0]).PushMany(context.Background(), items)
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
func (p *producer) async(fifo bool, jobs []int) {
	var q *client.Producer
	var err error
	if fifo {
		q, err = p.queues.Queue(workQueues[1]).NewProducer(client.ProducerOptions{MaxItems: together / 2})
	} else {
		q, err = p.queues.PriorityQueue(workQueues[0]).NewProducer(client.ProducerOptions{})
	}
	must(p.t, err)
	for len(jobs) > 0 {
		var futures []*client.PushFuture
		for _, n := range jobs {
			priority := priorityOf(n)
			if fifo {
				priority = 0
			}
			f, err := q.PushAsync(context.Background(), priority, jobMessage(n))
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
