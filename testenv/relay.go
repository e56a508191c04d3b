package testenv

import (
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// Relay passes requests for priority queues from clients with another prefix to the bridge, and the
// replies back. on sees each request first, in a goroutine of its own. It may answer in place of
// the bridge, or return nil; then a request from which it took the reply subject gets no reply.
func (e *Env) Relay(prefix string, on func(*nats.Msg) *nats.Msg) {
	e.t.Helper()
	nc := e.Connect()

	relay := func(m *nats.Msg) {
		if reply := on(m); reply != nil && m.Reply != "" {
			reply.Subject = m.Reply
			_ = nc.PublishMsg(reply) // if this fails, the test misses the reply
			return
		}

		inbox := nats.NewInbox()
		_, err := nc.Subscribe(inbox, func(r *nats.Msg) {
			back := &nats.Msg{Subject: m.Reply, Header: r.Header, Data: r.Data}
			rest, isOfQueue := strings.CutPrefix(r.Reply, subjects.DefaultPriorityPrefix+".")
			if isOfQueue {
				back.Reply = prefix + "." + rest
			}

			_ = nc.PublishMsg(back) // fails without a subject
		})

		if err == nil {
			err = nc.PublishMsg(&nats.Msg{
				Subject: subjects.DefaultPriorityPrefix + strings.TrimPrefix(m.Subject, prefix),
				Reply:   inbox,
				Header:  m.Header,
				Data:    m.Data,
			})
		}
		if err != nil {
			e.t.Error(err)
		}
	}

	var relaying sync.WaitGroup
	subscription, err := nc.Subscribe(prefix+".>", func(m *nats.Msg) {
		relaying.Go(func() { relay(m) })
	})
	if err == nil {
		err = nc.FlushTimeout(Patience) // requests may come from other connections
	}
	if err != nil {
		e.t.Fatal(err)
	}

	// Clients that stop leave requests behind. They use the connection, so they end before it does.
	e.t.Cleanup(func() {
		ended := make(chan struct{})
		subscription.SetClosedHandler(func(string) { close(ended) })
		if err := subscription.Unsubscribe(); err != nil {
			e.t.Error(err)
		}

		<-ended
		relaying.Wait()
	})
}
