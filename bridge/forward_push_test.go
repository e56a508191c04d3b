package bridge_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// A push with a group runs on the bridge that owns its queue, and loses nothing on the way. All
// others run where NATS delivers them.
func TestPushesWithGroupsAreForwarded(t *testing.T) {
	e := start(t, testenv.Options{NATS: withForwardedOnly})
	owner := e.StartBridge(forwardedOnly)
	waitForPeers(t, e.Bridge, owner)

	// All requests reach the first bridge, which forwards those for queues of the other.
	queue := ownedBy(t, e, owner, e.Bridge)
	subject := func(verb string) string { return "pq." + queue + "." + verb }

	ran := func() float64 {
		single := count(t, owner, `pq_requests_total{operation="push"}`)
		return single + count(t, owner, `pq_requests_total{operation="push-batch"}`)
	}

	group := nats.Header{subjects.HeaderGroup: {"acme"}}

	push(t, e, subject("push.9"), nil, "none")
	ok(t, e, subject("push.batch"), nil, frames(frame(9, "", "none")))
	same(t, "pushes at the owner without groups", ran(), 0)

	all := nats.Header{
		subjects.HeaderGroup:    {"acme"},
		subjects.HeaderWeight:   {"3"},
		subjects.HeaderPriority: {"2"},
		subjects.HeaderMsgID:    {"id"},
		subjects.HeaderUnique:   {"key"},
		"a":                     {"1", "2"},
		"Nats-Expected-Stream":  {queue},
		"Traceparent":           {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
	}

	id := push(t, e, subject("push"), all, "all").ID
	same(t, "id of a duplicate", push(t, e, subject("push"), all, "again").ID, id)

	push(t, e, subject("push"), group, "first")
	ok(t, e, subject("push.batch"), nil,
		frames(frame(3, "Pq-Group: acme\r\n", "third"), frame(3, "", "fourth")))
	// It counts them after the replies.
	waitUntil(t, "pushes at the owner with groups", func() bool { return ran() == 4 })

	// A server's note about one takes more room than there is, so that one stays.
	large := strings.Repeat("x", int(e.Conn.MaxPayload())-len("NATS/1.0\r\nPq-Group: acme\r\n\r\n"))
	push(t, e, subject("push.4"), group, large)
	same(t, "pushes at the owner beside a large one", ran(), 4)

	wantHeaders(t, ok(t, e, subject("pop.min"), nil, ""), group)
	wantHeaders(t, ok(t, e, subject("pop.min"), nil, ""), nats.Header{
		subjects.HeaderGroup:     {"acme"},
		subjects.HeaderMsgID:     {"id"},
		subjects.HeaderUnique:    {"key"},
		"a":                      {"1", "2"},
		"Traceparent":            all["Traceparent"],
		subjects.HeaderTraceDest: {subjects.TraceDisabled},
	})
	wantData(t, ok(t, e, subject("pop.min"), nil, ""), "third")
	wantData(t, ok(t, e, subject("pop.min"), nil, ""), "fourth")
}
