package subjects_test

import (
	"fmt"

	"github.com/pqbridge/pqbridge/subjects"
)

func Example() {
	grammar, err := subjects.New(subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix)
	if err != nil {
		fmt.Println(err)
		return
	}
	request, err := grammar.Parse("pq.jobs.push.-5")
	fmt.Println(request.Queue, request.Verb, request.Priority, err)

	_, err = grammar.Parse("pq.jobs.pop.middle")
	fmt.Println(err)
	// Output:
	// jobs push -5 <nil>
	// unknown verb "pop.middle": want one of push, push.<priority>, push.batch, pop.min, pop.max, peek.min, peek.max, len, ack.<token>, config, info, get, remove, rank, move, items, release, schedule, schedules, unschedule, purge, redrive
}
