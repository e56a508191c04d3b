package subjects_test

import (
	"fmt"
	"strings"

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
	problem, _, _ := strings.Cut(err.Error(), ", pop.min")
	fmt.Println(problem, "...")
	// Output:
	// jobs push -5 <nil>
	// unknown verb "pop.middle": want one of push, push.<priority>, push.batch ...
}
