package proof_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// producer pushes jobs, and repeats pushes until it knows that they count. The message ids make
// that safe.
type producer struct {
	*shop
	random *rand.Rand
	queues *client.Client
}

// together is how many jobs are pushed at once, at most.
const together = 40

// pushing pushes jobs in one of several ways, and returns what became of each.
type pushing func(p *producer, queue *client.Queue, jobs []client.PushItem) []client.PushResult

func (p *producer) run(push pushing) {
	for n := 0; !p.over(); n++ {
		queue := queueOf(p.queues, workQueues[n%2])
		var jobs []int

		for range 1 + p.random.IntN(together) {
			jobs = append(jobs, p.add())
		}

		for len(jobs) > 0 && !p.t.Failed() {
			items := make([]client.PushItem, len(jobs))
			for i, n := range jobs {
				value := strconv.AppendInt(nil, int64(n), 10)
				items[i].Message = client.Message{
					Value: value,
				}.With(client.MsgID(fmt.Sprint("job-", n)))

				if !isFIFO(queue.Name()) {
					items[i].Priority = int64(n*7919) % 5
				}
			}

			var left []int
			for i, r := range push(p, queue, items) {
				if r.Err == nil {
					p.pushed(jobs[i], queue.Name(), r.PushAck)
				} else {
					left = append(left, jobs[i])
				}
			}

			if jobs = left; len(left) > 0 {
				p.tell("pushes or batches repeated by the producer")
				<-time.After(10 * time.Millisecond)
			}
		}
	}
}

func (p *producer) over() bool {
	select {
	case <-p.closing:
		return true
	default:
		return p.t.Failed()
	}
}

// one pushes one after the other.
func (p *producer) one(queue *client.Queue, jobs []client.PushItem) []client.PushResult {
	results := make([]client.PushResult, len(jobs))
	for i, job := range jobs {
		results[i].PushAck, results[i].Err = queue.PushMsg(context.Background(), job.Priority,
			job.Message)
	}

	return results
}

// many pushes batches.
func (p *producer) many(queue *client.Queue, jobs []client.PushItem) []client.PushResult {
	results, _ := queue.PushMany(context.Background(), jobs)
	return results
}

// async pushes with a Producer.
func (p *producer) async(queue *client.Queue, jobs []client.PushItem) []client.PushResult {
	var o client.ProducerOptions
	if isFIFO(queue.Name()) {
		o.MaxItems = together / 2
	}

	q, err := queue.NewProducer(o)
	must(p.t, err)
	futures, results := make([]*client.PushFuture, len(jobs)), make([]client.PushResult, len(jobs))

	for i, job := range jobs {
		futures[i], err = q.PushAsync(context.Background(), job.Priority, job.Message)
		must(p.t, err)
	}

	for i, f := range futures {
		results[i].PushAck, results[i].Err = f.Wait(context.Background())
	}
	must(p.t, q.Close(context.Background()))
	return results
}
