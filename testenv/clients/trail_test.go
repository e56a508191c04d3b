package clients_test

import (
	"slices"
	"strconv"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// trailing has what became of jobs, attempt by attempt.
var trailing = []scenario{
	{"attempts and successors", attempts},
	{"a chain of jobs", chain},
	{"parents, kills and restarts", parentsAndKills},
}

// A job has its attempts, in its queue, as a dead letter and once it is done; it names what it has
// pushed, and that names its parent.
func attempts(s *story) {
	s.configure(client.Settings{
		Trail: 8, MaxDeliver: 2, Keep: time.Hour, Next: []string{"mail"},
	})
	d := s.driver()
	d.pushes("job1", nil)
	job := `{"id":"job1","priority":"0","value":"","headers":[],"group":"",`
	lease := func(deliveries string) {
		d.answers("lease", in{"holder": "h"}, job+`"deliveries":"`+deliveries+`"}`)
	}
	failed := `{"life":"1","number":"1","how":"nak","holder":"h","reason":"größer"}`

	lease("1")
	d.answers("settle", in{"lease": "1", "how": "nak", "reason": "größer"}, `null`)
	d.answers("look", in{"what": "get", "id": "job1"},
		job+`"state":"ready","attempts":[`+failed+`]}`)

	lease("2")
	d.answers("settle", in{"lease": "2", "how": "nak"}, `null`)
	failed += `,{"life":"1","number":"2","how":"nak","holder":"h"}`
	d.answers("look", in{"what": "get", "id": "job1"},
		job+`"state":"ready","attempts":[`+failed+`]}`)

	redrive := in{"what": "redrive", "queue": "jobs-dead", "id": "job1"}
	d.answers("manage", redrive, `{"home":"jobs"}`)
	lease("1")
	next := []in{{"queue": "mail"}}
	d.answers("settle", in{"lease": "3", "how": "ack", "next": next}, `null`)
	d.answers("look", in{"what": "get", "id": "job1"}, job+`"state":"done","attempts":[`+failed+
		`,{"life":"2","number":"1","how":"done","holder":"h"}],`+
		`"successors":[{"queue":"mail","id":"job2"}]}`)
	d.answers("look", in{"what": "get", "queue": "mail", "id": "job2"},
		`{"id":"job2","priority":"0","value":"","headers":[],"group":"","state":"ready",`+
			`"parent":{"queue":"jobs","id":"job1"}}`)
	s.leaves("job1", "acknowledged")
}

// A result follows a chain to its last job, unless the chain branches, or a job of it is not kept.
func chain(s *story) {
	s.configure(client.Settings{Trail: 8, Keep: time.Hour, Next: []string{"jobs"}})
	d := s.driver()
	end := do(step{"return", b64("end")})
	d.answers("work", nil, `null`)

	d.pushes("job1", in{"value": do(step{"next", "jobs", do(step{"next", "jobs", end})})})
	d.answers("result", in{"id": "job1", "follow": true, "wait": "1m"}, done(b64("end")))
	d.hears("start job1 1", "end job1 done", "start job2 1 parent job1", "end job2 done")
	d.hears("start job3 1 parent job2", "end job3 done")
	d.answers("result", in{"id": "job1"}, done(""))

	d.pushes("job4", in{"value": do(step{"next", "jobs", end}, step{"next", "jobs", end})})
	d.refuses("result", in{"id": "job4", "follow": true, "wait": "1m"}, "Chain")
	d.hears("start job4 1", "end job4 done", "start job5 1 parent job4", "end job5 done")
	d.hears("start job6 1 parent job4", "end job6 done")

	d.answers("manage", in{"what": "configure", "settings": in{"keep": nil}},
		`{"trail":"8"}`)
	d.pushes("job7", in{"keep": "1h", "value": do(step{"next", "jobs", end})})
	d.hears("start job7 1", "end job7 done", "start job8 1 parent job7", "end job8 done")
	d.answers("stop", nil, `null`)
	d.refuses("result", in{"id": "job7", "follow": true, "wait": "1m"}, "NotFound missing")
}

// Jobs that share acknowledgements, despite kills and restarts, are each the parent of the one job
// that they have pushed, and are found with it at the end of their chain. Each delivery of a job is
// one of its attempts.
func parentsAndKills(s *story) {
	s.configure(client.Settings{Trail: 16, Keep: time.Hour, Next: []string{"jobs"}})
	first, second := s.driver(), s.driver()
	const chains = 24
	brief := step{"wait", "20ms"}
	var items []in
	for n := range chains {
		last := do(brief, step{"return", b64(strconv.Itoa(n))})
		items = append(items, in{"value": do(brief, step{"next", "jobs", last})})
	}

	// An acknowledgement that is lost is sent again long before this lease is over.
	safe := in{"concurrency": "8", "ackWait": "20s"}
	first.answers("work", safe, `null`)
	second.answers("work", in{"concurrency": "8", "ackWait": "1s"}, `null`)
	s.waits(2)
	ids := first.ask("pushMany", in{"items": items}).answer().Value.([]any)
	second.hearsSome(8)
	second.kill()
	s.env.NATS.Restart()
	first.hearsSome(8)
	_ = s.env.Bridge.Stop() // NATS may have been away for some replies
	s.env.Bridge = s.env.StartBridge()
	third := s.driver()
	third.answers("work", safe, `null`)

	for n, pushed := range ids {
		id := pushed.(map[string]any)["id"].(string)
		for _, d := range []*driver{first, third} {
			result := in{"id": id, "follow": true, "wait": "2m"}
			d.answers("result", result, done(b64(strconv.Itoa(n))))
		}
	}
	s.holds("jobs")
	for _, d := range s.drivers {
		d.hearsSome(0)
	}
	s.wantTrails(chains)
}

// wantTrails fails the story unless so many jobs are kept that have pushed one job each, which
// names them, as its handlers do, and all have an attempt for each delivery.
func (s *story) wantTrails(chains int) {
	s.Helper()
	o := client.ItemsOptions{State: client.Done, Limit: 1000, Attempts: true}
	items := must(s.all.PriorityQueue("jobs").Items(s.Context(), o)).Items
	pushed := 0
	for _, parent := range items {
		last := parent.Attempts[len(parent.Attempts)-1]
		if int64(len(parent.Attempts)) != parent.Deliveries || last.How != "done" {
			s.Errorf("%d deliveries, and the attempts %v", parent.Deliveries, parent.Attempts)
		}
		if len(parent.Successors) == 0 {
			continue
		}
		pushed++

		child := slices.IndexFunc(items, func(i client.StoredItem) bool {
			p := i.Parent()
			return p != nil && p.ID == parent.ID
		})
		if child < 0 || len(parent.Successors) != 1 || parent.Successors[0].ID != items[child].ID {
			s.Errorf("%s has pushed %v: want the one that names it", parent.ID, parent.Successors)
			continue
		}
		for _, r := range s.judge.runs[items[child].ID] {
			if r.parent != parent.ID {
				s.Errorf("a handler was told of the parent %q: want %q", r.parent, parent.ID)
			}
		}
	}
	if pushed != chains || len(items) != 2*chains {
		s.Errorf("%d jobs, and %d of them have pushed: want %d", len(items), pushed, chains)
	}
}
