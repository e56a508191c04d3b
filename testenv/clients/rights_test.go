package clients_test

import (
	"github.com/nats-io/nats-server/v2/server"

	"github.com/pqbridge/pqbridge/testenv"
)

// rights has what the NATS server refuses.
var rights = []scenario{
	{"no permission to push", noPush},
	{"no permission for an inbox", noInbox},
	{"an inbox of its own", ownInbox},
	{"no permission to acknowledge", noAck},
	{"another account", anotherAccount},
}

// restricted starts a driver whose user has these permissions, and a NATS server for it.
func (s *story) restricted(may server.Permissions, variables ...string) *driver {
	s.Helper()
	s.begin(testenv.Options{NATS: func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "all", Password: "all"},
			{Username: "me", Password: "me", Permissions: &may},
		}
		o.NoAuthUser = "all"
	}})
	return s.driver(append(variables, "NATS_USER=me", "NATS_PASSWORD=me")...)
}

func deny(subjects ...string) *server.SubjectPermission {
	return &server.SubjectPermission{Deny: subjects}
}

// A push that the server refuses was not sent, and the connection goes on.
func noPush(s *story) {
	d := s.restricted(server.Permissions{Publish: deny("pq.jobs.push", "pq.jobs.push.>")})

	d.refuses("push", nil, "NotSent")
	d.answers("pushMany", in{"items": []in{{}, {}}}, `[{"error":"NotSent"},{"error":"NotSent"}]`)
	d.refuses("call", in{"wait": "1m"}, "NotSent")
	s.holds("jobs")

	d.pushes("job1", in{"queue": "mail"})
	s.holds("mail", "job1 0 ready 0")
}

// Without a place for replies, nothing is sent, and a worker ends.
func noInbox(s *story) {
	d := s.restricted(server.Permissions{Subscribe: deny("_INBOX.>")})

	d.refuses("push", nil, "NotSent")
	d.refuses("pop", nil, "NotSent")
	d.refuses("lease", in{"expires": "1m"}, "NotSent")
	d.refuses("look", in{"what": "len"}, "NotSent")
	s.holds("jobs")

	d.answers("work", nil, `null`)
	d.hearsError("NotSent")
}

// A client may have inboxes below a prefix of its own.
func ownInbox(s *story) {
	only := &server.SubjectPermission{Allow: []string{"_me.>"}}
	d := s.restricted(server.Permissions{Subscribe: only}, "PQ_INBOX_PREFIX=_me")
	d.answers("work", nil, `null`)

	d.answers("call", in{"value": do(step{"return", "b2s="}), "wait": "1m"}, `"b2s="`)
	d.hears("start job1 1", "end job1 done")
	d.answers("pop", in{"expires": "10ms", "queue": "other"}, `null`)
	d.answers("pop", in{"count": "5", "queue": "other"}, `[]`)
}

// A worker that may not acknowledge ends. Its job comes back when the lease is over.
func noAck(s *story) {
	d := s.restricted(server.Permissions{Publish: deny("pq.*.ack.*")})
	d.pushes("job1", nil)
	d.answers("lease", in{"ackWait": "1s"}, leased(item("job1", "0", ""), "1"))
	d.refuses("settle", in{"lease": "1", "how": "ack"}, "NotSent")

	d.answers("work", in{"ackWait": "1h"}, `null`)
	d.hears("start job1 2", "end job1 done")
	d.hearsError("NotSent")
	s.holds("jobs", "job1 0 leased 2")
	s.mayRepeat("job1")
}

// Clients of another account, to which the queues are exported, do everything that others do.
func anotherAccount(s *story) {
	s.begin(testenv.Options{NATS: testenv.ServerOptions(s, `
		accounts {
			QUEUES {
				users = [ { user: bridge, password: p } ]
				exports = [ { service: "pq.>", response: stream } ]
			}
			CLIENTS {
				users = [ { user: client, password: p } ]
				imports = [ { service: { account: QUEUES, subject: "pq.>" } } ]
			}
		}
		no_auth_user: bridge`)})
	d := s.driver("NATS_USER=client", "NATS_PASSWORD=p")
	d.answers("work", in{"concurrency": "2", "ackWait": "1s"}, `null`)

	long := do(step{"wait", "1500ms"}, step{"return", "b2s="})
	d.answers("call", in{"value": long, "wait": "1m"}, `"b2s="`)
	d.hears("start job1 1", "end job1 done")
	d.answers("stop", nil, `null`)

	d.answers("pushMany", in{"items": []in{{"value": "YQ=="}, {"value": "Yg=="}, {}}}, `[`+
		`{"id":"job2","duplicate":false},{"id":"job3","duplicate":false},`+
		`{"id":"job4","duplicate":false}]`)
	d.answers("pop", in{"count": "2"}, `[`+item("job2", "0", "YQ==")+`,`+
		item("job3", "0", "Yg==")+`]`)
	d.answers("lease", in{"ackWait": "1m"}, leased(item("job4", "0", ""), "1"))
	d.answers("settle", in{"lease": "1", "how": "extend"}, `null`)
	d.answers("settle", in{"lease": "1", "how": "ack"}, `null`)
	s.leaves("job4", "acknowledged")
	s.holds("jobs")
}
