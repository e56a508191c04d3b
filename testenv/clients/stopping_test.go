package clients_test

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/pqbridge/pqbridge/testenv"
)

// stopping has workers that stop.
var stopping = []scenario{
	{"stop while waiting, as a push arrives", stopAsAPushArrives},
	{"stop with a job in hand", stopWithAJob},
	{"stop is over before the job", stopTooSoon},
	{"several at once", severalAtOnce},
	{"SIGTERM with a job in hand", terminated},
}

// A job that is pushed while a waiting worker stops is done, or is given back uncounted.
func stopAsAPushArrives(s *story) {
	d := s.driver()
	for n := range 20 {
		d.answers("work", in{"worker": fmt.Sprint(n)}, `null`)

		var stop, push *asked
		if n%2 > 0 {
			push = d.ask("push", nil)
		}
		stop = d.ask("stop", in{"worker": fmt.Sprint(n)})
		if push == nil {
			push = d.ask("push", nil)
		}

		job := fmt.Sprint("job", n+1)
		push.answers(fmt.Sprintf(`{"id":%q,"priority":"0","duplicate":false}`, job))
		stop.answers(`null`)

		// An item that was on its way goes back shortly after the worker has stopped.
		var there []string
		testenv.Eventually(s, func() error {
			there = s.itemsOf(s.all.PriorityQueue("jobs"), "")
			if want := []string{job + " 0 ready 0"}; len(there) > 0 && !slices.Equal(there, want) {
				return fmt.Errorf("the queue has %q: want %q, or nothing", there, want)
			}
			return nil
		})

		if len(there) > 0 {
			d.answers("pop", nil, item(job, "0", ""))
		} else {
			d.hears(fmt.Sprintf("start %s 1 %d", job, n), fmt.Sprintf("end %s done %d", job, n))
		}
	}
}

// A worker that stops begins no job, and ends the one it has.
func stopWithAJob(s *story) {
	d := s.driver()
	d.pushes("job1", in{"value": do(step{"wait", "300ms"})})
	d.pushes("job2", nil)
	d.answers("work", nil, `null`)
	d.hears("start job1 1")

	d.answers("stop", in{"timeout": "1m"}, `null`)

	d.hears("end job1 done")
	s.holds("jobs", "job2 0 ready 0")
}

// When the timeout of stop is over, handlers are asked to stop, and their jobs go back uncounted.
func stopTooSoon(s *story) {
	d := s.driver()
	d.pushes("job1", in{"value": do(step{"wait", "1h"})})
	d.answers("work", nil, `null`)
	d.hears("start job1 1")

	d.answers("stop", in{"timeout": "50ms"}, `null`)

	d.hears("end job1 stopped")
	s.holds("jobs", "job1 0 ready 0")
}

// A worker has as many jobs at once as it may, in the order of the queue.
func severalAtOnce(s *story) {
	d := s.driver()
	for n := range 4 {
		d.pushes(fmt.Sprint("job", n+1), in{"value": do(step{"wait", "1h"})})
	}
	d.answers("work", in{"concurrency": "3"}, `null`)
	d.hears("start job1 1", "start job2 1", "start job3 1")
	s.holds("jobs", "job1 0 leased 1", "job2 0 leased 1", "job3 0 leased 1", "job4 0 ready 0")

	d.answers("stop", in{"timeout": "50ms"}, `null`)

	d.hears("end job1 stopped", "end job2 stopped", "end job3 stopped")
	s.holds("jobs", "job1 0 ready 0", "job2 0 ready 0", "job3 0 ready 0", "job4 0 ready 0")
}

// SIGTERM ends a driver once its workers have stopped.
func terminated(s *story) {
	d := s.driver()
	d.pushes("job1", in{"value": do(step{"wait", "300ms"})})
	d.pushes("job2", nil)
	d.answers("work", nil, `null`)
	d.hears("start job1 1")

	d.signal(syscall.SIGTERM)

	d.exits()
	d.hears("end job1 done")
	s.holds("jobs", "job2 0 ready 0")
}
