package clients_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// judge keeps the books of a story: each job that was pushed is done once, or taken once, or still
// there, and no two handlers have it at once.
type judge struct {
	mu    sync.Mutex
	runs  map[string][]run  // of handlers, by the ids of jobs
	jobs  []string          // that were pushed
	taken map[string]string // how jobs left, by id, without a handler
	twice map[string]bool   // jobs that may be done again, because nobody could say that they are
}

// run is one call of a handler.
type run struct {
	driver     *driver
	worker     string
	start, end int64  // in milliseconds; end is 0 without one
	how        string // it ended
	joined     string // what a joiner was told of its members
	parent     string // the id of the parent that it was told of
}

// mayRepeat says that a job may be done again after it was done.
func (s *story) mayRepeat(name string) {
	s.judge.mu.Lock()
	defer s.judge.mu.Unlock()
	if s.judge.twice == nil {
		s.judge.twice = map[string]bool{}
	}
	s.judge.twice[s.idOf(name)] = true
}

// leaves says that a job leaves the queue in a way that the judge does not see.
func (s *story) leaves(name, how string) { s.judge.take(s, s.idOf(name), how) }

// event records what a handler said.
func (j *judge) event(d *driver, e event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.runs == nil {
		j.runs = map[string][]run{}
	}

	if e.Event == "start" {
		j.runs[e.Job] = append(j.runs[e.Job], run{
			driver: d, worker: e.Worker, start: e.At, joined: e.Joined, parent: e.Parent,
		})
		return
	}

	for i, r := range j.runs[e.Job] {
		if r.driver == d && r.worker == e.Worker && r.end == 0 {
			j.runs[e.Job][i].end, j.runs[e.Job][i].how = e.At, e.How
			return
		}
	}
	d.Errorf("%s: %s ended job %s, which had not begun there", d.name, e.Worker, e.Job)
}

// answer records what a command did to jobs.
func (j *judge) answer(a *asked, is answer) {
	items, isList := is.Value.([]any)
	if !isList {
		items = []any{is.Value}
	}

	for _, item := range items {
		o, _ := item.(map[string]any)
		id, _ := o["id"].(string)
		switch {
		case id == "" || o["duplicate"] == true:
		case slices.Contains([]string{"push", "pushMany", "all", "open"}, a.op):
			j.mu.Lock()
			j.jobs = append(j.jobs, id)
			j.mu.Unlock()
		case a.op == "pop" && a.members["peek"] == nil:
			j.take(a.d.story, id, "popped by "+a.d.name)
		}
	}
}

// take records that a job has left its queue.
func (j *judge) take(s *story, id, how string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if before, gone := j.taken[id]; gone {
		s.Errorf("%s was taken twice: %s, and %s", s.named("job", id), before, how)
	}
	if j.taken == nil {
		j.taken = map[string]string{}
	}
	j.taken[id] = how
}

// verdict returns the faults: a job that is lost, done twice, or held by two at once. there has the
// state of each job that is in a queue, or kept.
func (j *judge) verdict(there map[string]string) (wrong []string) {
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for id, runs := range j.runs {
		done := 0
		for i, r := range runs {
			if r.how == "done" && !r.driver.killed { // which did not acknowledge it, perhaps
				done++
			}
			for _, other := range runs[i+1:] {
				if r.overlaps(other) {
					add("two had %s at once: %v, and %v", id, r, other)
				}
			}
		}

		isThere := there[id] != "" && there[id] != string(client.Done)
		switch {
		case done > 0 && j.taken[id] != "":
			add("%s was done and %s", id, j.taken[id])
		case j.twice[id]:
		case done > 1:
			add("%s was done %d times: %v", id, done, runs)
		case done > 0 && isThere:
			add("%s was done, and is %s: %v", id, there[id], runs)
		}
	}

	for _, id := range j.jobs {
		isDone := slices.ContainsFunc(j.runs[id], func(r run) bool { return r.how == "done" })
		if !isDone && there[id] == "" && j.taken[id] == "" {
			add("%s is lost: %v", id, j.runs[id])
		}
	}
	return wrong
}

// overlaps reports whether two handlers had a job at once, and nobody had asked the first to stop.
func (r run) overlaps(other run) bool {
	if r.start > other.start {
		r, other = other, r
	}
	excused := r.driver.killed || r.how == "lost" || r.how == "timeout"
	return !excused && (r.end == 0 || r.end > other.start)
}

func (r run) String() string {
	const text = "%s in %s from %d to %d (%s)"
	return fmt.Sprintf(text, r.worker, r.driver.name, r.start, r.end, r.how)
}

// The judge finds each kind of fault, and none in what may happen.
func TestJudge(t *testing.T) {
	calm, killed := &driver{name: "calm"}, &driver{name: "killed", killed: true}
	did := func(start, end int64, how string) run {
		return run{driver: calm, start: start, end: end, how: how}
	}
	done := did(10, 20, "done")

	for what, test := range map[string]struct {
		runs  []run
		state string // of the job, "" for none
		taken string
		wrong string // the beginning of what the judge says, "" for nothing
	}{
		"done":              {runs: []run{done}},
		"done and kept":     {runs: []run{done}, state: "done"},
		"not done yet":      {state: "ready"},
		"popped":            {taken: "popped"},
		"failed, then done": {runs: []run{did(1, 5, "failed"), done}},
		"lost, and others":  {runs: []run{did(5, 30, "lost"), done}},
		"killed, then done": {runs: []run{{driver: killed, start: 5}, done}},

		"gone":            {wrong: "job is lost"},
		"failed and gone": {runs: []run{did(1, 5, "failed")}, wrong: "job is lost"},
		"done and there":  {runs: []run{done}, state: "ready", wrong: "job was done, and is ready"},
		"done and popped": {runs: []run{done}, taken: "popped", wrong: "job was done and popped"},
		"done twice":      {runs: []run{done, did(30, 40, "done")}, wrong: "job was done 2"},
		"held by two":     {runs: []run{done, did(15, 40, "failed")}, wrong: "two had job"},
		"held on":         {runs: []run{{driver: calm, start: 5}, done}, wrong: "two had job"},
	} {
		j := judge{jobs: []string{"job"}, runs: map[string][]run{"job": test.runs}}
		if test.taken != "" {
			j.taken = map[string]string{"job": test.taken}
		}

		wrong := strings.Join(j.verdict(map[string]string{"job": test.state}), "; ")
		if !strings.HasPrefix(wrong, test.wrong) || (wrong == "") != (test.wrong == "") {
			t.Errorf("%s: the judge says %q: want %q", what, wrong, test.wrong)
		}
	}
}

// everything returns the state of each job in all queues.
func (s *story) everything() map[string]string {
	states := map[string]string{}
	for _, list := range []func() []*client.Queue{s.priorityQueues, s.fifoQueues} {
		for _, q := range list() {
			for _, state := range []client.State{"", client.Done} {
				page, err := q.Items(s.Context(), client.ItemsOptions{State: state, Limit: 1000})
				if err != nil {
					s.Fatal(err)
				}
				for _, i := range page.Items {
					states[i.ID] = string(i.State)
				}
			}
		}
	}
	return states
}

func (s *story) priorityQueues() (queues []*client.Queue) {
	for _, q := range must(s.all.ListPriorityQueues(s.Context(), "", 0)).Queues {
		queues = append(queues, s.all.PriorityQueue(q.Queue))
	}
	return queues
}

func (s *story) fifoQueues() (queues []*client.Queue) {
	for _, q := range must(s.all.ListFIFOQueues(s.Context(), "", 0)).Queues {
		queues = append(queues, s.all.FIFOQueue(q.Queue))
	}
	return queues
}

// wantPause fails the story if a handler got the job again before that time was over.
func (s *story) wantPause(name string, d time.Duration) {
	s.Helper()
	runs := s.judge.runs[s.idOf(name)]
	for i, r := range runs[1:] {
		if pause := r.start - runs[i].end; pause < d.Milliseconds() {
			s.Errorf("%s came back after %d ms: want %v", name, pause, d)
		}
	}
}
