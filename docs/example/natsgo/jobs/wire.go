package jobs

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"
)

// refusal is an error that the bridge replied with.
type refusal struct{ code, text string }

func (r refusal) Error() string        { return r.text + " (" + r.code + ")" }
func (r refusal) Is(target error) bool { return target == refusal{code: r.code} }

var (
	errEmpty = refusal{code: "404"} // compare with errors.Is
	errLost  = refusal{code: "409"}
	errBusy  = refusal{code: "429"}
	errAway  = refusal{code: "503"}

	errSilence = errors.New("no answer")
)

// refused returns the error that a reply is, or nil.
func refused(reply *nats.Msg) error {
	code := reply.Header.Get("Nats-Service-Error-Code")
	if code == "" {
		return nil
	}
	return refusal{code, reply.Header.Get("Nats-Service-Error")}
}

// temporary reports whether it is worth trying again later.
func temporary(err error) bool {
	for _, target := range []error{errBusy, errAway, errSilence, nats.ErrNoResponders, nats.ErrReconnectBufExceeded} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

func pause(ctx context.Context, why error) {
	log.Printf("trying again: %v", why)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
}

// request sends a request until it is answered, or ctx ends. Use it for what may be done twice: a push with a message id,
// and acknowledgements.
func request(ctx context.Context, nc *nats.Conn, m *nats.Msg) (*nats.Msg, error) {
	for {
		once, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errSilence)
		reply, err := nc.RequestMsgWithContext(once, m)
		switch {
		case err == nil:
			err = refused(reply)
		case once.Err() != nil:
			err = fmt.Errorf("%s: %w", m.Subject, context.Cause(once))
		}
		cancel()
		if err == nil || ctx.Err() != nil || !temporary(err) {
			return reply, err
		}
		pause(ctx, err)
	}
}

// settle sends an acknowledgement. Its error is errLost if the job is settled, or somebody else has it; if an earlier
// attempt got no answer, that one most likely counted.
func settle(ctx context.Context, nc *nats.Conn, job *nats.Msg, payload string) error {
	_, err := request(ctx, nc, &nats.Msg{Subject: job.Reply, Data: []byte(payload)})
	return err
}

// fetch sends a pop and returns up to n items, which is the batch of the options. If ctx ends, it cancels a pop that has an id.
func fetch(ctx context.Context, nc *nats.Conn, n int, id, options string) ([]*nats.Msg, error) {
	inbox := nc.NewInbox() // for the replies to this request only
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails if the connection is closed
	if err := nc.PublishRequest("pq.jobs.pop.min", inbox, []byte(options)); err != nil {
		return nil, err
	}
	if id != "" {
		until, giveUp := context.WithCancel(context.WithoutCancel(ctx))
		defer giveUp()
		defer context.AfterFunc(ctx, func() { // the answer to this says nothing: the pop ends with a message of its own
			_ = nc.PublishRequest("pq.jobs.pop.min", nc.NewInbox(), []byte(`{"cancel":"`+id+`"}`)) // fails if NATS is away
			time.AfterFunc(2*time.Second, giveUp)                                                  // the bridge may be away
		})()
		ctx = until
	}
	var items []*nats.Msg
	for len(items) < n {
		// Longer than two intervals of heartbeats. Items that are lost with a connection come back: they are leased.
		next, cancel := context.WithTimeoutCause(ctx, 11*time.Second, errSilence)
		m, err := sub.NextMsgWithContext(next)
		if err != nil && next.Err() != nil {
			err = context.Cause(next)
		}
		cancel()
		switch {
		case err != nil:
			return items, err
		case m.Header.Get("Pq-Heartbeat") != "":
			continue
		}
		err = refused(m)
		if ends := m.Header.Get("Pq-Batch-Count") != ""; len(items) > 0 && (err != nil || ends) {
			return items, nil // an error is for the next request
		} else if err != nil {
			return nil, err
		}
		items = append(items, m)
	}
	return items, nil
}
