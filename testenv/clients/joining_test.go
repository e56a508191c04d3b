package clients_test

import (
	"slices"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// joining has jobs that run when others have ended.
var joining = []scenario{
	{"joiner and members", joinerAndMembers},
	{"open join", openJoin},
	{"joins, kills and restarts", joinsAndKills},
}

// A joiner runs once all its members have ended, and is told what became of them.
func joinerAndMembers(s *story) {
	d := s.driver()
	all := in{"items": []in{
		{}, {"value": do(step{"wait", "10ms"})}, {"value": do(step{"drop", "no"})},
	}}
	d.answers("all", all, `[{"id":"job1","duplicate":false},{"id":"job2","duplicate":false},`+
		`{"id":"job3","duplicate":false}]`)
	s.holds("jobs", "job1 0 delayed 0", "job2 0 ready 0", "job3 0 ready 0")
	d.answers("work", nil, `null`)

	d.hears("start job2 1", "end job2 done")
	d.hears("start job3 1", "end job3 failed")
	d.hears("start job1 1 joined done=1 dead=1 gone=0 open=0", "end job1 done")
	s.holds("jobs")
}

// A joiner that is open gets members until it is closed, and none after it has run.
func openJoin(s *story) {
	d := s.driver()
	d.answers("open", in{"open": "1h", "msgId": "once"}, `{"id":"job1"}`)
	d.pushes("job2", in{"joiner": "job1"})
	d.answers("work", nil, `null`)
	d.hears("start job2 1", "end job2 done")

	d.answers("close", in{"id": "job1"}, `null`)

	d.hears("start job1 1 joined done=1 dead=0 gone=1 open=0", "end job1 done")
	d.refuses("push", in{"joiner": "job1"}, "Joined joined")
	d.answers("close", in{"id": "job1"}, `null`)
}

// Jobs that push a joiner and its members with their acknowledgements, and a member that pushes
// another one, are each done once, despite kills and restarts. Each joiner is done once, after all
// its members, and is told of each of them.
func joinsAndKills(s *story) {
	s.configure(client.Settings{MaxDeliver: 5, Keep: time.Hour, Next: []string{"jobs"}})
	first, second := s.driver(), s.driver()
	brief, part := step{"wait", "20ms"}, do(step{"wait", "10ms"})
	fan := do(brief, step{"all", "jobs", do(brief),
		part, do(brief, step{"member", "jobs", part}), do(step{"drop", "no such user"})})
	const fans = 12
	s.names = map[string]string{}

	// An acknowledgement that is lost is sent again long before this lease is over.
	safe := in{"concurrency": "4", "ackWait": "20s"}
	first.answers("work", safe, `null`)
	second.answers("work", in{"concurrency": "4", "ackWait": "1s"}, `null`)
	s.waits(2)
	first.ask("pushMany", in{"items": slices.Repeat([]in{{"value": fan}}, fans)}).answer()
	second.hearsSome(8)
	second.kill()
	s.env.NATS.Restart()
	first.hearsSome(8)
	_ = s.env.Bridge.Stop() // NATS may have been away for some replies
	s.env.Bridge = s.env.StartBridge()
	s.driver().answers("work", safe, `null`)

	s.holds("jobs")
	for _, d := range s.drivers {
		d.hearsSome(0)
	}
	dead := s.itemsOf(s.all.PriorityQueue("jobs-dead"), "")
	kept := s.itemsOf(s.all.PriorityQueue("jobs"), client.Done)
	if len(dead) != fans || len(kept) != 5*fans {
		s.Errorf("%d jobs are dead letters and %d done: want %d and %d",
			len(dead), len(kept), fans, 5*fans)
	}
	s.wantJoined(fans, 3, "done=3 dead=1 gone=0 open=0")
}

// wantJoined fails the story unless there are so many joiners, each of which was told that of its
// members, and began after the runs of the members that are kept, so many of each.
func (s *story) wantJoined(joiners, kept int, told string) {
	s.Helper()
	members := map[string]int{} // by the ids of joiners
	page := must(s.all.PriorityQueue("jobs").Items(s.Context(),
		client.ItemsOptions{State: client.Done, Limit: 1000}))
	for _, i := range page.Items {
		for _, ref := range i.Headers[subjects.HeaderJoiner] {
			_, joiner, _ := strings.Cut(ref, " ")
			members[joiner]++
			for _, r := range s.judge.runs[i.ID] {
				if first := s.judge.runs[joiner][0]; r.start > first.start || r.end > first.start {
					s.Errorf("the joiner ran %v, and its member %v", first, r)
				}
			}
		}
	}

	if len(members) != joiners {
		s.Errorf("%d joiners have members that are kept: want %d", len(members), joiners)
	}
	for id, n := range members {
		for _, r := range s.judge.runs[id] {
			if n != kept || r.joined != told {
				s.Errorf("%d members are kept, and the joiner was told of %q: want %d and %q",
					n, r.joined, kept, told)
			}
		}
	}
}
