package bridge_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// actions returns the lines of the log about actions, from the action on.
func (l *syncLog) actions() (lines []string) {
	for line := range strings.Lines(l.String()) {
		if _, action, found := strings.Cut(line, `level=INFO msg=action `); found {
			lines = append(lines, strings.TrimSpace(action))
		}
	}
	return lines
}

// wantActions compares these lines, and returns how many there are. Those from before are left out.
func (l *syncLog) wantActions(t *testing.T, before int, want ...string) int {
	t.Helper()
	all := l.actions()
	if got := all[before:]; len(got) != len(want) {
		t.Errorf("logged %q, want %q", got, want)
	} else {
		for i := range want {
			if !regexp.MustCompile("^" + want[i] + "$").MatchString(got[i]) {
				t.Errorf("logged %q, want %s", got[i], want[i])
			}
		}
	}

	return len(all)
}

// Each request that changes many items, settings or a schedule leaves a line in the log: the
// action, the queue, the number of items, and who claims to have asked. Other requests leave none.
func TestActsAreLogged(t *testing.T) {
	var log syncLog
	e := start(t, testenv.Options{Bridge: func(o *bridge.Options) { o.Logger = log.logger() }})
	who := nats.Header{subjects.HeaderClient: {"ann@laptop pid 7 pq"}}
	const by = ` client="ann@laptop pid 7 pq" inbox=_INBOX\.\w+`
	var ids []string
	for range 4 {
		ids = append(ids, push(t, e, "pq.jobs.push", nil, "x").ID)
	}

	both := fmt.Sprintf(`"ids":[%q,%q]`, ids[0], ids[1])
	some := func(queue string) string {
		ok(t, e, "pq.jobs.config", nil, `{"max_deliver":1,"dead_letter":"`+queue+`"}`)
		m := ok(t, e, "pq.jobs.pop.min", nil, `{"ack_wait":"1m"}`)
		ok(t, e, m.Reply, nil, `-NAK`)
		return queue
	}

	seen := 0
	for _, m := range []struct{ subject, payload, want string }{
		{
			"pq.jobs.config", `{"pause_until":"2999-01-01T00:00:00Z"}`,
			`action=config queue=pq.jobs request="{.*2999-01-01T00:00:00Z.*}"`,
		},
		{
			"pq.jobs.config", `{"pause_until":null}`,
			`action=config queue=pq.jobs request="{.*:null}"`,
		},
		{"pq.jobs.config", ``, ``},
		// Nothing is paused any more, and there is no such setting to unset.
		{"pq.jobs.config", `{"pause_until":null}`, ``},
		{"pq.jobs.config", `{"ttl":null}`, ``},
		{
			"pq.jobs.move", `{"priority":-9,` + both + `}`,
			`action=move queue=pq.jobs items=2 request="{.*priority.*:-9}"`,
		},
		{
			"pq.jobs.remove", `{"ids":["` + ids[2] + `","` + ids[0] + `"]}`,
			`action=remove queue=pq.jobs items=2`,
		},
		// There is nothing left to remove.
		{"pq.jobs.remove", `{"ids":["` + ids[2] + `","` + ids[0] + `"]}`, ``},
		{"pq.jobs.remove", `{"id":"` + ids[3] + `"}`, ``},
		{"pq.jobs.purge", `{"state":"delayed"}`, ``},
		{
			"pq.jobs.purge", `{"state":"ready"}`,
			`action=purge queue=pq.jobs items=1 request="{.*ready.*}"`,
		},
		{"pq.jobs.purge", ``, ``},
		{
			"q.mail.schedule",
			`{"id":"nightly","every":"24h","value":"c2VjcmV0","headers":{"Key":["secret"]}}`,
			`action=schedule queue=q.mail request="{.*24h.*nightly.*}"`,
		},
		{
			"q.mail.schedule",
			`{"id":"nightly","every":"24h","value":"c2VjcmV0","headers":{"Key":["secret"]}}`,
			``,
		},
		{
			"q.mail.schedule", `{"id":"nightly","paused":true}`,
			`action=schedule queue=q.mail request="{.*nightly.*paused.*:true}"`,
		},
		{"q.mail.schedule", `{"id":"nightly","paused":true}`, ``},
		{
			"q.mail.unschedule", `{"id":"nightly"}`,
			`action=unschedule queue=q.mail request="{.*nightly.*}"`,
		},
		{"pq.jobs.info", ``, ``},
	} {
		ok(t, e, m.subject, who, m.payload)

		if m.want == "" {
			seen = log.wantActions(t, seen)
		} else {
			seen = log.wantActions(t, seen, m.want+by)
		}
	}

	// A refused request leaves none.
	refused(t, e, 400, "pq.jobs.purge", who, []byte(`{"state":"x"}`))
	refused(t, e, 400, "pq.jobs.config", who, []byte(`{"ttl":"x"}`))
	refused(t, e, 404, "pq.jobs.unschedule", who, []byte(`{"id":"nightly"}`))
	log.wantActions(t, seen)

	// A redrive of dead letters that the bridge has to find.
	push(t, e, "pq.jobs.push", nil, "x")
	dead := some("failed")
	seen = len(log.actions())
	ok(t, e, "pq."+dead+".redrive", who, `{"max":5}`)

	text := log.String()
	if strings.Contains(text, "secret") || strings.Contains(text, "c2VjcmV0") {
		t.Errorf("logged %s", text)
	}
	log.wantActions(t, seen, `action=redrive queue=pq.failed items=1 request="{.*max.*:5}"`+by)
}

// What a client says of itself, and the reply subject that it chooses, are quoted and cut.
func TestActsOfHostileClients(t *testing.T) {
	var log syncLog
	e := start(t, testenv.Options{Bridge: func(o *bridge.Options) { o.Logger = log.logger() }})
	evil := `x" items=0` + "\x1b[2J\u2028" + ` level=ERROR msg="` + strings.Repeat("é", 1000)
	info := `{"acc":"SYS","user":"root"}` // only NATS says this, to requests from another account

	ok(t, e, "pq.jobs.config", nats.Header{
		subjects.HeaderClient:      {evil},
		subjects.HeaderRequestInfo: {info},
	}, `{"ttl":"1h"}`)

	inbox := `a="b".` + strings.Repeat("x", 1000)
	replies, err := e.Conn.SubscribeSync(inbox + ".*")
	must(t, err)
	must(t, e.Conn.PublishRequest("pq.jobs.config", inbox+".1", []byte(`{"ttl":"2h"}`)))

	next(t, replies)

	log.wantActions(t, 0,
		`action=config queue=pq.jobs request="[^ ]*" client="x\\" items=0.\[2J\\u2028 level=ERROR `+
			`msg=\\"é+" inbox=_INBOX\.\w+`,
		`action=config queue=pq.jobs request="[^ ]*" inbox="a=\\"b\\".x+"`)

	for _, line := range log.actions() {
		if len(line) > 1000 {
			t.Errorf("a line of %d bytes: %s", len(line), line)
		}
	}
}

// For a request from another account NATS itself says who made it, whatever the client claims: with
// "share" the user too, without it only the account.
func TestActsFromAnotherAccount(t *testing.T) {
	for share, want := range map[bool]string{
		true:  `"account CLIENTS user client host 127.0.0.1 name laptop"`,
		false: `"account CLIENTS"`,
	} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			var log syncLog
			e := testenv.New(t, testenv.Options{
				Stopped: true,
				NATS: testenv.ServerOptions(t, fmt.Sprintf(`accounts {
					QUEUES {
						users = [ { user: bridge, password: p } ]
						exports = [ { service: "pq.>" } ]
					}
					CLIENTS {
						users = [ { user: client, password: p } ]
						imports = [ { service: { account: QUEUES, subject: "pq.>" }, share: %t } ]
					}
				}`, share)),
				Bridge: func(o *bridge.Options) {
					o.NATSOptions = append(o.NATSOptions, nats.UserInfo("bridge", "p"))
					o.Logger = log.logger()
				},
			})

			e.NATS.Start()
			newBridge(e)
			e.Conn = e.Connect(nats.UserInfo("client", "p"), nats.Name("laptop"))

			ok(t, e, "pq.jobs.config", nats.Header{
				subjects.HeaderClient:      {"bob"},
				subjects.HeaderRequestInfo: {`{"acc":"SYS","user":"root"}`},
			}, `{"ttl":"1h"}`)

			log.wantActions(t, 0,
				`action=config queue=pq.jobs request="[^ ]*" client=bob nats=`+want)
		})
	}
}

// An action of unknown outcome is logged as such, because it may have been done.
func TestActOfUnknownOutcome(t *testing.T) {
	t.Parallel()

	var log syncLog
	var faults *faultkv.DB
	var left, commits atomic.Int64 // how many transactions may begin, and were committed
	left.Store(1 << 60)

	gate := hooked{
		commit: func() { commits.Add(1) },
		begin: func(context.Context) error {
			if left.Add(-1) < 0 {
				return kv.ErrUnavailable
			}
			return nil
		},
	}

	e := testenv.New(t, testenv.Options{
		Bridge: func(o *bridge.Options) { o.Logger = log.logger() },
		Wrap: func(db kv.Database) kv.Database {
			faults = faultkv.New(db, faultkv.Options{})
			return gate.wrap(faults)
		},
	})

	// It must not get the fault, nor the turn of the purge.
	waitUntil(t, "the sweep of old receipts", func() bool { return commits.Load() >= 2 })
	push(t, e, "pq.jobs.push", nil, "x")

	// The commit gets no answer, and the store cannot be asked.
	left.Store(1)
	faults.Next(faultkv.UnknownMade)
	err := refused(t, e, 503, "pq.jobs.purge", nil, nil)
	left.Store(1 << 60)

	if !err.Unknown {
		t.Errorf("%v: not unknown", err)
	}
	log.wantActions(t, 0, `action=purge queue=pq.jobs outcome=unknown inbox=_INBOX\.\w+`)
}

// A change of settings is forwarded to the owner of the queue, whose log says who asked.
func TestForwardedActSaysWhoAsked(t *testing.T) {
	var logs [2]syncLog
	n := 0
	e := start(t, testenv.Options{Bridge: func(o *bridge.Options) {
		o.Logger = logs[n].logger()
		n++
	}})
	second := newBridge(e)
	waitForPeers(t, e.Bridge, second)
	const queues = 32

	for i := range queues {
		ok(t, e, fmt.Sprintf("pq.jobs-%d.config", i), nats.Header{subjects.HeaderClient: {"ann"}},
			`{"ttl":"1h"}`)
	}

	lines := append(logs[0].actions(), logs[1].actions()...)
	for _, line := range lines {
		if !strings.Contains(line, " client=ann ") {
			t.Errorf("logged %s", line)
		}
	}

	passed := count(t, e.Bridge, "pq_passed_total") + count(t, second, "pq_passed_total")
	if len(lines) != queues || passed == 0 {
		t.Errorf("%d lines for %d changes, of which %v were forwarded", len(lines), queues, passed)
	}
}
