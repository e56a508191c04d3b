package main

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/schedule"
)

const (
	scheduledQueues   = 20
	largeSchedules    = 96     // of each queue, nearly 4 MiB together
	largeScheduleSize = 32_000 // bytes of a value
)

// A service in 256 MiB of memory outlives all that many clients do at once with as many bytes of
// schedules as queues can have, beside large pushes.
func TestPeakSchedules(t *testing.T) {
	p := startPeak(t, 0, peakSetting(t, "PQ_TEST_PEAK_MEMORY", peakMemory)<<20)
	defer p.watchOthers()()
	p.row("20 queues with 4 MiB of schedules each", p.fillSchedules)

	p.atOnce("schedule of 27 bytes, 150 at once", 150, p.pauseSchedule)
	p.atOnce("purge, 150 at once", 150, func(i int) int {
		return p.one(scheduled(i, "purge"), "{}")
	})
	p.atOnce("schedules, 60 at once", 60, func(i int) int {
		return p.listSchedules(i, &atomic.Bool{})
	})
	p.row("20 set, 150 pause, 40 list and 28 push, at once", p.setListAndPush)
}

// scheduled returns the subject of a request to one of the queues.
func scheduled(i int, verb string) string {
	return fmt.Sprintf("pq.scheduled-%d.%s", i%scheduledQueues, verb)
}

// setSchedule sets a schedule of a queue, which fires in a year.
func (p *peak) setSchedule(queue, id int) int {
	change := subjects.ScheduleChange{Schedule: schedule.Schedule{
		ID:    fmt.Sprint(id),
		Every: schedule.Duration(schedule.MaxEvery / 10),
		Value: make([]byte, largeScheduleSize),
	}}
	return p.one(scheduled(queue, "schedule"), string(change.Encode()))
}

func (p *peak) fillSchedules() int {
	return p.together(scheduledQueues, func(queue int) (n int) {
		for id := range largeSchedules {
			n += p.setSchedule(queue, id)
		}
		return n
	})
}

// pauseSchedule pauses or resumes a schedule with a small request.
func (p *peak) pauseSchedule(i int) int {
	pause := subjects.EncodePause(fmt.Sprint(i%largeSchedules), i%2 == 0)
	return p.one(scheduled(i, "schedule"), string(pause))
}

// listSchedules reads all schedules of a queue, page by page, or those up to the end of some work.
func (p *peak) listSchedules(i int, done *atomic.Bool) (n int) {
	var o subjects.ListOptions
	for !done.Load() {
		reply := p.ask(scheduled(i, "schedules"), o.Encode())
		var page struct {
			Schedules []json.RawMessage
			Next      *string
		}
		if err := json.Unmarshal(reply.Data, &page); err != nil {
			p.t.Errorf("a page of schedules: %v %v", err, subjects.ErrorFromHeaders(reply.Header))
			return n
		}

		if n += len(page.Schedules); page.Next == nil {
			return n
		}

		o.After = *page.Next
	}

	return n
}

// setListAndPush sets and pauses schedules while others list them and push and pop large items.
func (p *peak) setListAndPush() int {
	var done atomic.Bool
	var others sync.WaitGroup
	value := make([]byte, 900_000)

	for range 28 {
		others.Go(func() {
			for !done.Load() {
				p.ask("pq.large.push", value)
				p.ask("pq.large.pop.min", nil)
			}
		})
	}

	for i := range 40 {
		others.Go(func() {
			for !done.Load() {
				p.listSchedules(i, &done)
			}
		})
	}

	const setters, pausers = 20, 150
	n := p.together(setters+pausers, func(i int) (n int) {
		for round := range 20 {
			if i < setters {
				n += p.setSchedule(i, round)
			} else {
				n += p.pauseSchedule(i + round*scheduledQueues)
			}
		}
		return n
	})

	done.Store(true)
	others.Wait()
	return n
}
