package clients_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// managing has the other requests about queues and items.
var managing = []scenario{
	{"FIFO queues", fifo},
	{"several pops", severalPops},
	{"delay and expiry", delayAndExpiry},
	{"duplicates", duplicates},
	{"groups and pauses", groups},
	{"items by id", itemsByID},
	{"items by their ids", itemsByIDs},
	{"late repeats", lateRepeats},
	{"rank and release", rankAndRelease},
	{"purge", purge},
	{"lists of queues and schedules", lists},
	{"search", search},
	{"settings", settings},
	{"schedules", schedules},
	{"bad requests", badRequests},
	{"bad calls", badCalls},
}

// FIFO queues have the same verbs and no priorities.
func fifo(s *story) {
	d := s.driver()
	for n := range 3 {
		value := do(step{"return", "b2s="})
		d.pushes(fmt.Sprint("job", n+1), in{"fifo": true, "keep": "1h", "value": value})
	}
	d.refuses("push", in{"fifo": true, "priority": "1"}, "BadRequest")
	d.refuses("pop", in{"fifo": true, "max": true}, "BadRequest")
	d.answers("look", in{"fifo": true, "what": "len"}, `"3"`)
	s.holds("jobs") // the priority queue with the same name is another one

	d.answers("pop", in{"fifo": true}, item("job1", "0", do(step{"return", "b2s="})))
	d.answers("work", in{"fifo": true}, `null`)
	d.hears("start job2 1", "end job2 done", "start job3 1", "end job3 done")
	d.answers("result", in{"fifo": true, "id": "job3", "wait": "1m"}, done("b2s="))
}

// A pop of several items waits for them, or returns what there is.
func severalPops(s *story) {
	d := s.driver()
	d.answers("pop", nil, `null`)
	d.answers("pop", in{"peek": true}, `null`)
	d.answers("pop", in{"count": "3"}, `[]`)
	d.answers("pop", in{"expires": "20ms"}, `null`)

	sent := must(s.env.Conn.SubscribeSync("pq.jobs.pop.min"))
	if err := s.env.Conn.Flush(); err != nil {
		s.Fatal(err)
	}
	waits := d.ask("pop", in{"count": "3", "expires": "1m"})
	must(sent.NextMsg(testenv.Patience)) // commands run side by side: the pushes come after it
	d.pushes("job1", in{"priority": "3"})
	d.pushes("job2", in{"priority": "2"})
	d.pushes("job3", in{"priority": "1"})
	waits.answers(`[` + item("job1", "3", "") + `,` + item("job2", "2", "") + `,` +
		item("job3", "1", "") + `]`)

	d.pushes("job4", in{"priority": "1"})
	d.pushes("job5", in{"priority": "2"})
	d.answers("pop", in{"max": true}, item("job5", "2", ""))
	most := in{"count": "3", "max": true, "expires": "50ms"}
	d.answers("pop", most, `[`+item("job4", "1", "")+`]`)
}

// A delayed item waits for its time, and an expired one is gone.
func delayAndExpiry(s *story) {
	d := s.driver()
	soon := time.Now().Add(300 * time.Millisecond).UTC().Format("2006-01-02T15:04:05.000Z07:00")
	d.pushes("job1", in{"delay": "1h"})
	d.pushes("job2", in{"at": "2031-01-02T15:04:05Z"})
	d.pushes("job3", in{"at": "2020-01-02T15:04:05Z"})
	d.pushes("job4", in{"ttl": "1s"})
	d.pushes("job5", in{"at": soon})
	d.pushes("job6", in{"delay": "300ms"})
	s.leaves("job4", "expired")

	d.answers("pop", nil, item("job3", "0", ""))
	s.holdsJobs("jobs", "job1", "job2", "job5", "job6")
	d.answers("pop", in{"count": "2", "expires": "1m"},
		`[`+item("job5", "0", "")+`,`+item("job6", "0", "")+`]`)
	s.holds("jobs", "job1 0 delayed 0", "job2 0 delayed 0")
}

// A second push with a message id, or with the unique key of an item that is there, changes
// nothing.
func duplicates(s *story) {
	d := s.driver()
	d.pushes("job1", in{"msgId": "a", "value": "YQ=="})
	d.answers("push", in{"msgId": "a", "value": "Yg==", "priority": "5"},
		`{"id":"job1","priority":"0","duplicate":true}`)
	d.answers("pushMany", in{"items": []in{{"msgId": "a"}, {"msgId": "b"}, {"msgId": "b"}}}, `[`+
		`{"id":"job1","duplicate":true},{"id":"job2","duplicate":false},`+
		`{"id":"job2","duplicate":true}]`)

	d.pushes("job3", in{"unique": "u"})
	d.answers("push", in{"unique": "u"}, `{"id":"job3","priority":"0","duplicate":true}`)
	d.answers("pop", in{"count": "3"}, `[`+item("job1", "0", "YQ==")+`,`+item("job2", "0", "")+`,`+
		item("job3", "0", "")+`]`)
	d.answers("push", in{"msgId": "a"}, `{"id":"job1","priority":"0","duplicate":true}`)
	d.pushes("job4", in{"unique": "u"})
	s.holds("jobs", "job4 0 ready 0")
}

// Groups take turns by their weights, and can be paused, as the queue can.
func groups(s *story) {
	d := s.driver()
	for n, push := range []in{
		{"group": "a", "weight": "2"}, {"group": "a", "weight": "2"}, {"group": "a", "weight": "2"},
		{"group": "b"}, {"group": "b"},
	} {
		d.pushes(fmt.Sprint("job", n+1), push)
	}
	d.refuses("push", in{"weight": "2"}, "BadRequest")

	grouped := func(job, group string) string {
		return strings.Replace(item(job, "0", ""), `"group":""`, `"group":"`+group+`"`, 1)
	}
	d.answers("manage", in{"what": "pause", "group": "a"}, `null`)
	d.answers("pop", nil, grouped("job4", "b"))
	d.answers("manage", in{"what": "resume", "group": "a"}, `null`)
	d.answers("manage", in{"what": "pause"}, `null`)
	d.answers("pop", nil, `null`)
	d.answers("lease", nil, `null`)
	waits := d.ask("pop", in{"count": "4", "expires": "1m"})
	d.answers("manage", in{"what": "resume"}, `null`)
	waits.answers(`[` + grouped("job1", "a") + `,` + grouped("job2", "a") + `,` +
		grouped("job3", "a") + `,` + grouped("job5", "b") + `]`)
}

// An item is found, moved and removed by the id of its job.
func itemsByID(s *story) {
	d := s.driver()
	d.pushes("job1", in{"priority": "5"})
	d.pushes("job2", in{"priority": "6"})
	d.answers("manage", in{"what": "move", "id": "job1", "priority": "7"}, `{"place":"place1"}`)
	s.holds("jobs", "job2 6 ready 0", "job1 7 ready 0")
	d.answers("look", in{"what": "get", "id": "job1"},
		`{"id":"job1","priority":"7","value":"","headers":[],"group":"","state":"ready"}`)

	d.answers("lease", nil, leased(item("job2", "6", ""), "1"))
	d.refuses("manage", in{"what": "move", "id": "job2", "priority": "1"}, "Leased leased")
	d.answers("manage", in{"what": "remove", "id": "job2"}, `null`)
	s.leaves("job2", "removed")
	d.refuses("settle", in{"lease": "1", "how": "ack"}, "LeaseLost lost")

	d.refuses("manage", in{"what": "remove", "id": "job2"}, "NotFound missing")
	d.refuses("manage", in{"what": "move", "id": "job2", "priority": "1"}, "NotFound missing")
	d.refuses("look", in{"what": "get", "id": "job2"}, "NotFound missing")
	d.refuses("result", in{"id": "job2"}, "NotFound missing")
}

// Several items are changed in one request, and each succeeds or fails by itself.
func itemsByIDs(s *story) {
	s.configure(client.Settings{MaxDeliver: 1})
	d := s.driver()
	for n := range 4 {
		d.pushes(fmt.Sprint("job", n+1), in{"priority": "5"})
	}
	const unknown = "FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo"
	missing := `{"error":"NotFound missing"}`
	d.answers("lease", nil, leased(item("job1", "5", ""), "1"))

	move := in{"what": "move", "ids": []string{"job2", "job1", "job3"}, "priority": "7"}
	d.answers("manage", move, `[{"place":"place1"},{"error":"Leased leased"},{"place":"place2"}]`)
	s.holds("jobs", "job1 5 leased 1", "job4 5 ready 0", "job2 7 ready 0", "job3 7 ready 0")
	d.answers("manage", in{"what": "release", "ids": []string{"job1", unknown}}, `[{},`+missing+`]`)
	s.holds("jobs", "job1 5 ready 0", "job4 5 ready 0", "job2 7 ready 0", "job3 7 ready 0")
	d.refuses("settle", in{"lease": "1", "how": "ack"}, "LeaseLost lost")
	d.answers("manage", in{"what": "remove", "ids": []string{"job4", unknown}}, `[{},`+missing+`]`)
	s.leaves("job4", "removed")

	d.answers("lease", in{"count": "5"}, `[`+leased(item("job1", "5", ""), "1")+`,`+
		leased(item("job2", "7", ""), "1")+`,`+leased(item("job3", "7", ""), "1")+`]`)
	for _, lease := range []string{"2", "3", "4"} {
		d.answers("settle", in{"lease": lease, "how": "nak", "reason": "broken"}, `null`)
	}
	s.holdsJobs("jobs-dead", "job1", "job2", "job3")
	dead := in{"what": "redrive", "queue": "jobs-dead", "ids": []string{"job3", unknown, "job1"}}
	d.answers("manage", dead, `[{"home":"jobs"},`+missing+`,{"home":"jobs"}]`)
	s.holds("jobs", "job1 5 ready 0", "job3 7 ready 0")
	d.refuses("manage", in{"what": "remove", "ids": []string{}}, "BadRequest")
	d.refuses("manage", in{"what": "remove", "ids": []string{"no id"}}, "BadRequest")
}

// A move or redrive that names a place and is repeated late finds nothing there, and does not undo
// what has happened to the job since.
func lateRepeats(s *story) {
	const missing = "NotFound missing"
	d := s.driver()
	d.pushes("job1", in{"priority": "1"})
	move := in{"what": "move", "place": "job1", "priority": "5"}
	d.answers("manage", move, `{"place":"place1"}`)
	d.answers("manage", in{"what": "move", "id": "job1", "priority": "3"}, `{"place":"place2"}`)
	d.refuses("manage", move, missing)
	several := in{"what": "move", "places": []string{"place1", "place2"}, "priority": "4"}
	d.answers("manage", several, `[{"error":"`+missing+`"},{"place":"place3"}]`)
	d.answers("manage", several, `[{"error":"`+missing+`"},{"error":"`+missing+`"}]`)
	s.holds("jobs", "job1 4 ready 0")
	d.answers("manage", in{"what": "remove", "id": "job1"}, `null`)
	s.leaves("job1", "removed")
	d.refuses("manage", in{"what": "move", "place": "", "priority": "1"}, "BadRequest")
	d.refuses("manage", in{"what": "move", "places": []string{}, "priority": "1"}, "BadRequest")

	s.configure(client.Settings{Keep: time.Hour})
	d.pushes("job2", nil)
	d.answers("lease", nil, leased(item("job2", "0", ""), "1"))
	d.answers("settle", in{"lease": "1", "how": "ack", "result": b64("first")}, `null`)
	redrive := in{"what": "redrive", "places": []string{"job2"}}
	d.answers("manage", redrive, `[{"home":"jobs"}]`)
	d.answers("manage", redrive, `[{"error":"`+missing+`"}]`)
	d.answers("lease", nil, leased(item("job2", "0", ""), "1"))
	d.answers("settle", in{"lease": "2", "how": "ack", "result": b64("second")}, `null`)
	d.answers("manage", redrive, `[{"error":"`+missing+`"}]`)
	d.answers("result", in{"id": "job2"}, done(b64("second")))
}

// The rank of an item is how many are served before it. A lease that is released is over at once.
func rankAndRelease(s *story) {
	d := s.driver()
	d.pushes("job1", in{"priority": "3"})
	d.pushes("job2", in{"priority": "1"})
	d.pushes("job3", in{"priority": "2"})
	d.answers("look", in{"what": "rank", "id": "job1"}, `{"rank":"2","atLeast":false}`)
	d.answers("look", in{"what": "rank", "id": "job1", "max": true}, `{"rank":"0","atLeast":false}`)

	d.answers("lease", in{"ackWait": "1h"}, leased(item("job2", "1", ""), "1"))
	d.answers("manage", in{"what": "release", "id": "job2"}, `null`)
	s.holds("jobs", "job2 1 ready 0", "job3 2 ready 0", "job1 3 ready 0")
	d.refuses("settle", in{"lease": "1", "how": "ack"}, "LeaseLost lost")
	d.refuses("manage", in{"what": "release", "id": "job2"}, "LeaseLost not_leased")

	d.answers("manage", in{"what": "remove", "id": "job2"}, `null`)
	s.leaves("job2", "removed")
	d.refuses("look", in{"what": "rank", "id": "job2"}, "NotFound missing")
	d.refuses("manage", in{"what": "release", "id": "job2"}, "NotFound missing")
}

// A purge removes all items, or the items in one state.
func purge(s *story) {
	d := s.driver()
	d.pushes("job1", nil)
	d.pushes("job2", in{"delay": "1h"})
	d.pushes("job3", in{"delay": "1h"})
	d.answers("lease", in{"ackWait": "1h"}, leased(item("job1", "0", ""), "1"))
	d.pushes("job4", nil)

	d.answers("manage", in{"what": "purge", "state": "delayed"}, `{"purged":"2"}`)
	s.leaves("job2", "purged")
	s.leaves("job3", "purged")
	s.holds("jobs", "job1 0 leased 1", "job4 0 ready 0")
	d.answers("manage", in{"what": "purge"}, `{"purged":"2"}`)
	s.leaves("job1", "purged")
	s.leaves("job4", "purged")
	d.refuses("settle", in{"lease": "1", "how": "ack"}, "LeaseLost lost")
	d.answers("manage", in{"what": "purge"}, `{"purged":"0"}`)
	d.refuses("manage", in{"what": "purge", "state": "none"}, "BadRequest")
	s.holds("jobs")
}

// Queues and schedules are listed by name, on as many pages as it takes.
func lists(s *story) {
	d := s.driver()
	d.answers("look", in{"what": "queues"}, `[]`)
	d.answers("look", in{"what": "schedules"}, `[]`)

	for n, queue := range []string{"b", "a", "d", "c", "e"} {
		d.pushes(fmt.Sprint("job", n+1), in{"queue": queue})
	}
	d.pushes("job6", in{"queue": "f", "fifo": true})
	d.answers("look", in{"what": "queues"}, `["a","b","c","d","e"]`)
	d.answers("look", in{"what": "queues", "fifo": true}, `["f"]`)

	var want []string
	for _, id := range []string{"daily", "hourly"} {
		s.names[id] = id
		d.ask("manage", in{"what": "schedule", "name": id, "schedule": in{"every": "24h"}}).answer()
		want = append(want,
			fmt.Sprintf(`{"id":%q,"every":"24h0m0s","fired":"0","skipped":"0"}`, id))
	}
	d.answers("look", in{"what": "schedules"}, `[`+strings.Join(want, ",")+`]`)
}

// Items are listed by state, and searched by what they contain. A list may have many pages.
func search(s *story) {
	d := s.driver()
	d.pushes("job1", in{"value": b64("for acme"), "headers": [][]string{{"X-Tenant", "7 ✓"}}})
	d.pushes("job2", in{"value": b64("for globex"), "delay": "1h"})
	first := `{"id":"job1","priority":"0","state":"ready","deliveries":"0","size":"8",` +
		`"headers":{"X-Tenant":["7 ✓"]},"value":"` + b64("for acme") + `"}`
	d.answers("look", in{"what": "items", "match": "acme"}, `[`+first+`]`)
	d.answers("look", in{"what": "items", "match": "7 ✓"}, `[`+first+`]`)
	d.answers("look", in{"what": "items", "match": "nobody"}, `[]`)
	d.answers("look", in{"what": "items", "state": "delayed"}, `[{"id":"job2","priority":"0",`+
		`"state":"delayed","deliveries":"0","size":"10","value":"`+b64("for globex")+`"}]`)
	d.answers("look", in{"what": "items", "state": "done"}, `[]`)

	var items []in
	var want []string
	for n := range 250 {
		items = append(items, in{})
		want = append(want, listed(fmt.Sprint("job", n+3), "0"))
	}
	if is := d.ask("pushMany", in{"queue": "many", "items": items}).answer(); is.Error == nil {
		d.plain(is.Value)
	}
	d.answers("look", in{"queue": "many", "what": "items"}, `[`+strings.Join(want, ",")+`]`)
}

// Settings are set and reset one by one.
func settings(s *story) {
	d := s.driver()
	d.answers("manage", in{"what": "configure", "settings": in{}}, `{}`)
	d.answers("manage", in{"what": "configure", "settings": in{
		"ack_wait": "1m", "backoff": []string{"1s", "90s"}, "max_deliver": 5, "keep": "1h",
		"paused_groups": []string{"ä"}, "max_items": 9007199254740993 >> 24,
	}}, `{"ack_wait":"1m0s","backoff":["1s","1m30s"],"max_deliver":"5","keep":"1h0m0s",`+
		`"paused_groups":["ä"],"max_items":"536870912"}`)
	d.answers("manage", in{"what": "configure", "settings": in{"backoff": nil, "max_deliver": 0,
		"keep": nil, "paused_groups": nil, "max_items": nil}}, `{"ack_wait":"1m0s"}`)
	d.refuses("manage", in{"what": "configure", "settings": in{"max_deliver": -1}}, "BadRequest")
	d.refuses("manage", in{"what": "configure", "settings": in{"no_such": 1}}, "BadRequest")
	d.answers("look", in{"what": "info"}, `{"queue":"jobs","ready":"0","leased":"0","delayed":"0",`+
		`"priorities":{},"settings":{"ack_wait":"1m0s"}}`)
}

// Schedules are set and removed.
func schedules(s *story) {
	d := s.driver()
	s.names["nightly"] = "nightly"
	d.answers("manage", in{"what": "schedule", "name": "nightly", "schedule": in{
		"cron": "0 3 * * *", "zone": "Europe/Berlin", "priority": 5, "value": "cmVwb3J0",
	}}, `{"id":"nightly","cron":"0 3 * * *","zone":"Europe/Berlin","priority":"5",`+
		`"value":"cmVwb3J0","fired":"0","skipped":"0"}`)
	never := in{"what": "schedule", "name": "nightly", "schedule": in{"cron": "at three"}}
	d.refuses("manage", never, "BadRequest")
	d.answers("manage", in{"what": "unschedule", "name": "nightly"}, `null`)
	d.refuses("manage", in{"what": "unschedule", "name": "nightly"}, "NotFound missing")
}

// What cannot be asked is refused, and changes nothing.
func badRequests(s *story) {
	d := s.driver()
	d.refuses("push", in{"queue": "no.dots"}, "BadRequest")
	d.refuses("push", in{"queue": ""}, "BadRequest")
	d.refuses("push", in{"delay": "1h", "at": "2031-01-02T15:04:05Z"}, "BadRequest")
	d.refuses("push", in{"ttl": "1ms"}, "BadRequest")
	d.refuses("push", in{"keep": "1ms"}, "BadRequest")
	d.refuses("push", in{"msgId": strings.Repeat("x", 513)}, "BadRequest")
	d.refuses("pop", in{"count": "1001"}, "BadRequest")
	d.refuses("pop", in{"expires": "2h"}, "BadRequest")
	d.refuses("lease", in{"ackWait": "1ms"}, "BadRequest")
	d.refuses("lease", in{"holder": strings.Repeat("x", 129)}, "BadRequest")
	d.refuses("look", in{"what": "get", "id": "no id"}, "BadRequest")
	d.refuses("result", in{"id": "no id"}, "BadRequest")
	d.refuses("work", in{"ackWait": "1ms"}, "BadRequest")
	d.refuses("work", in{"queue": "no.dots"}, "BadRequest")
	d.answers("look", in{"what": "len"}, `"0"`)
}

// A call that cannot be made pushes nothing.
func badCalls(s *story) {
	d := s.driver()
	if is := d.ask("call", in{"wait": "-1s"}).answer(); is.Error == nil { // a context in Go
		s.Errorf("%s: a call that waits for -1s: %v: want an error", d.name, is.Value)
	}
	d.refuses("call", in{"wait": "1m", "keep": "1ms"}, "BadRequest")
	d.answers("look", in{"what": "len"}, `"0"`)
}
