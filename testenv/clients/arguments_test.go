package clients_test

import (
	"fmt"
	"strings"
)

// arguments has what no operation takes, or that each takes: empty, zero, negative, huge.
//
// Left out is what only some languages can say. 0 is the default of Go's options for leases, pops
// and workers, and Go's TTL(0) is never; a retry delay below 0 is at once in Go. Types that are
// wrong, and NaN, are in each client's own tests, as the lines carry none.
var arguments = []scenario{
	{"arguments of pushes", func(s *story) { argue(s, pushArguments()) }},
	{"arguments of pops and leases", func(s *story) { argue(s, popArguments()) }},
	{"arguments of acknowledgements", settleArguments},
	{"arguments of handlers", handlerArguments},
	{"arguments of workers", func(s *story) { argue(s, workArguments()) }},
	{"arguments of the rest", func(s *story) { argue(s, otherArguments()) }},
}

// argument is a command that is refused, or else succeeds.
type argument struct {
	op      string
	members in
	takes   bool
}

// Durations beyond all bounds: by a second, and by far.
const overTenYears, huge = "87600h1s", "2000000h"

// refused returns a command for each value of a member, beside some others.
func refused(op, member string, beside in, values ...string) (list []argument) {
	for _, value := range values {
		members := in{member: value}
		for name, other := range beside {
			members[name] = other
		}
		list = append(list, argument{op: op, members: members})
	}
	return list
}

// argue sends the commands, and says of all that end otherwise.
func argue(s *story, list []argument) {
	s.Helper()
	d := s.driver()
	for _, a := range list {
		d.argues(a)
	}
}

func (d *driver) argues(a argument) {
	d.Helper()
	asked := d.ask(a.op, a.members)
	is := asked.answer()
	switch {
	case a.takes && is.Error != nil:
		d.Errorf("%s: %s: the error %s (%s): want none", d.name, asked.text, is.Error,
			is.Error.Text)
	case is.Error == nil:
		d.judge.answer(asked, is)
		if !a.takes {
			d.Errorf("%s: %s: %.300v: want BadRequest", d.name, asked.text, is.Value)
		}
	case !a.takes && is.Error.String() != "BadRequest":
		d.Errorf("%s: %s: the error %s (%s): want BadRequest", d.name, asked.text, is.Error,
			is.Error.Text)
	}
}

func pushArguments() (list []argument) {
	for _, op := range []string{"push", "call"} {
		call := in{}
		if op == "call" {
			call["wait"] = "1m"
		}
		add := func(member string, values ...string) {
			list = append(list, refused(op, member, call, values...)...)
		}
		add("queue", "", "no.dots", strings.Repeat("q", 129))
		add("unique", "", strings.Repeat("u", 513))
		add("msgId", strings.Repeat("m", 513))
		add("group", "", strings.Repeat("g", 129))
		add("delay", "-1s", overTenYears, huge)
		add("at", "2525-01-02T15:04:05Z")
		add("ttl", "-1s", "999ms", overTenYears, huge)
		add("keep", "0s", "-1s", "999ms", overTenYears, huge)
		add("join", "0s", "-1s", "999ms", overTenYears, huge)
		call["group"] = "g"
		add("weight", "0", "-1", "101", "2147483648")
	}
	list = append(list, refused("open", "open", nil, "0s", "-1s", "999ms", overTenYears, huge)...)
	return append(list,
		argument{"push", in{"delay": "0s"}, true},
		argument{"push", in{"at": "1969-01-02T15:04:05Z"}, true},
		argument{"push", in{"delay": "87600h"}, true},
		argument{"push", in{"keep": "1s", "ttl": "87600h", "group": "g", "weight": "100"}, true},
		argument{"pushMany", in{"items": []in{}}, true},
	)
}

func popArguments() (list []argument) {
	for _, op := range []string{"pop", "lease"} {
		list = append(list, refused(op, "count", nil, "0", "-1", "1001", "2147483648")...)
		list = append(list, refused(op, "expires", nil, "-1s", "1h1s", overTenYears, huge)...)
	}
	list = append(list, refused("lease", "ackWait", nil, "-1s", "99ms", "12h1s", huge)...)
	list = append(list, refused("lease", "holder", nil, strings.Repeat("h", 129), "a\nb")...)
	return append(list,
		argument{"pop", in{"count": "1000"}, true},
		argument{"lease", in{"count": "1000", "ackWait": "12h"}, true},
	)
}

// A lease outlasts acknowledgements with bad arguments.
func settleArguments(s *story) {
	d := s.driver()
	d.pushes("job1", in{"keep": "1h"})
	d.answers("lease", in{"ackWait": "1h"}, leased(item("job1", "0", ""), "1"))
	settle := func(how, member string, values ...string) {
		for _, a := range refused("settle", member, in{"lease": "1", "how": how}, values...) {
			d.argues(a)
		}
	}

	settle("nak", "delay", "-1s", overTenYears, huge)
	settle("nak", "retryDelay", "-1s", overTenYears, huge)
	settle("snooze", "delay", "-1s", overTenYears, huge)
	settle("extend", "progress", strings.Repeat("p", 1025))
	settle("ack", "result", b64(strings.Repeat("r", 64<<10+1)))

	s.holds("jobs", "job1 0 leased 1")
	d.answers("settle", in{"lease": "1", "how": "ack", "result": b64("ok")}, `null`)
	for _, wait := range []string{"-1s", overTenYears, huge} {
		d.argues(argument{op: "result", members: in{"id": "job1", "wait": wait}})
	}
	s.kept("jobs", "job1 0 done 1")
}

// A job whose handler names a bad delay fails, and comes back as any other that failed.
func handlerArguments(s *story) {
	d := s.driver()
	d.answers("work", in{"retryDelay": "1h"}, `null`)
	n := 0
	var want []string
	for _, delay := range []string{"-1s", overTenYears, huge} {
		for _, script := range []string{
			do(step{"snooze", delay}), do(step{"retry", delay, "why"}),
		} {
			n++
			job := fmt.Sprint("job", n)
			d.pushes(job, in{"value": script})
			d.hears("start "+job+" 1", "end "+job+" failed")
			want = append(want, job)
		}
	}
	s.holdsJobs("jobs", want...)
	d.answers("stop", nil, `null`)
}

func workArguments() (list []argument) {
	list = append(list, refused("work", "queue", nil, "", "no.dots")...)
	list = append(list, refused("work", "concurrency", nil, "-1", "2147483648")...)
	list = append(list, refused("work", "ackWait", nil, "-1s", "99ms", "12h1s", huge)...)
	list = append(list, refused("work", "jobTimeout", nil, "-1s")...)
	list = append(list, refused("work", "retryDelay", nil, overTenYears, huge)...)
	list = append(list, refused("work", "holder", nil, strings.Repeat("h", 129), "a\nb")...)
	return list
}

func otherArguments() (list []argument) {
	for _, what := range []string{"get", "rank"} {
		list = append(list, refused("look", "id", in{"what": what}, "", "no id")...)
	}
	list = append(list, refused("look", "state", in{"what": "items"}, "odd")...)
	list = append(list, refused("result", "id", nil, "", "no id")...)
	list = append(list, refused("result", "msgId", nil, "", strings.Repeat("m", 513))...)

	many := make([]string, 1001)
	for _, what := range []string{"move", "remove", "release", "redrive"} {
		list = append(list,
			argument{op: "manage", members: in{"what": what, "ids": []string{}, "priority": "0"}},
			argument{op: "manage", members: in{"what": what, "ids": many, "priority": "0"}},
		)
		if what != "redrive" { // without an id, that is for all
			list = append(list,
				refused("manage", "id", in{"what": what, "priority": "0"}, "", "no id")...)
		}
	}
	list = append(list, refused("manage", "max", in{"what": "redrive"}, "-1", "2147483647")...)
	list = append(list, refused("manage", "state", in{"what": "purge"}, "odd")...)
	for _, what := range []string{"schedule", "unschedule"} {
		list = append(list, refused("manage", "name",
			in{"what": what, "schedule": in{"every": "1h"}}, "", strings.Repeat("n", 129))...)
	}

	for _, settings := range []in{
		{"ack_wait": "-1s"}, {"ack_wait": huge}, {"keep": "-1s"},
		{"keep": overTenYears}, {"max_deliver": -1}, {"trail": -1}, {"trail": 1 << 40},
		{"backoff": []string{"-1s"}}, {"backoff": []string{huge}}, {"max_delivr": 1},
	} {
		list = append(list,
			argument{op: "manage", members: in{"what": "configure", "settings": settings}})
	}
	for _, schedule := range []in{
		{}, {"every": "0s"}, {"every": "-1s"}, {"every": huge}, {"cron": ""}, {"cron": "often"},
		{"every": "1h", "cron": "@daily"},
	} {
		members := in{"what": "schedule", "name": "tick", "schedule": schedule}
		list = append(list, argument{op: "manage", members: members})
	}
	return list
}
