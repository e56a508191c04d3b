package target

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// chainOf returns the chain of a job, of jobs by queue and id. Dead letters are in the queue lost.
func chainOf(of trail.Job, jobs map[string]client.StoredItem) ([]*Kin, *Kin) {
	return Chain(of, func(job trail.Job) (in string, it client.StoredItem, err error) {
		if job.Queue == "closed" {
			return job.Queue, it, errors.New("no permission")
		}
		for _, in := range []string{job.Queue, "lost"} {
			if it, found := jobs[in+" "+job.ID]; found {
				return in, it, nil
			}
		}
		return job.Queue, it, client.ErrNotFound
	})
}

// pushedBy are the headers of a successor.
func pushedBy(job string) map[string][]string {
	return map[string][]string{trail.HeaderParent: {job}}
}

// A chain has the parents of a job and what came of it, also dead letters, and says which jobs are
// gone or cannot be read.
func TestChain(t *testing.T) {
	over := subjects.Done{FinishedAt: time.Unix(1, 0)}
	jobs := map[string]client.StoredItem{
		"first 1": {State: client.Done, Done: &over, Headers: pushedBy("older 0")},
		"jobs 2": {
			State: client.Done, Done: &over, Headers: pushedBy("first 1"),
			Successors: []trail.Job{
				{Queue: "mail", ID: "3"}, {Queue: "mail", ID: "4"}, {Queue: "closed", ID: "5"},
			},
			MoreSuccessors: 7,
		},
		"lost 3": letter("3", "mail", "no such user", 1),
	}

	all, self := chainOf(trail.Job{Queue: "jobs", ID: "2"}, jobs)

	var lines []string
	for _, k := range all {
		what, _, _ := strings.Cut(k.Standing(time.Unix(61, 0)), ":")
		lines = append(lines, fmt.Sprintf("%d %s %s open=%t", k.Depth, k, what, k.IsOpen()))
	}
	got := strings.Join(lines, "\n")
	const want = `-2 older 0 gone open=false
-1 first 1 done 60s ago open=false
0 jobs 2 done 60s ago open=false
1 mail 3 dead for 60s open=true
1 mail 4 gone open=false
1 closed 5 not known open=false`
	if got != want || self != all[2] || self.More != 7 || all[3].In != "lost" {
		t.Errorf("the chain is\n%s\nwant\n%s", got, want)
	}
}

// A chain ends after so many jobs, even if jobs push each other in circles.
func TestLongChain(t *testing.T) {
	next := []trail.Job{{Queue: "jobs", ID: "1"}, {Queue: "jobs", ID: "1"}}
	jobs := map[string]client.StoredItem{
		"jobs 1": {State: client.Done, Headers: pushedBy("jobs 1"), Successors: next},
	}

	all, self := chainOf(next[0], jobs)

	more := 0
	for _, k := range all {
		more += k.More
	}
	if len(all) != MaxChain || self.Depth != 0 || more == 0 {
		t.Errorf("%d jobs, and %d more", len(all), more)
	}
}
