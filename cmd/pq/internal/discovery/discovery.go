// Package discovery asks the bridges, and the NATS server, what they say about themselves.
package discovery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// FirstAnswer is how long to wait for the first bridge of the service, moreAnswers for each
	// further one.
	FirstAnswer = 2 * time.Second
	moreAnswers = 200 * time.Millisecond
)

// StatsSubject asks all bridges what they count.
const StatsSubject = "$SRV.STATS.pqbridge"

// Bridge is a reply to INFO or STATS. Only one to STATS has BridgeStats and other figures.
type Bridge struct {
	micro.Stats
	*subjects.BridgeStats `json:"bridge"`

	Asked, Arrived time.Time `json:"-"` // of replies to INFO
}

// Parse reads a reply to INFO or STATS. It returns nil unless that comes from a bridge with this
// grammar: a service with other prefixes may share the NATS server.
func Parse(g subjects.Grammar, reply []byte) *Bridge {
	b := &Bridge{}
	if json.Unmarshal(reply, b) != nil {
		return nil
	}

	// The sender may not be a bridge.
	isNil := func(e *micro.EndpointStats) bool { return e == nil }
	b.Endpoints = slices.DeleteFunc(b.Endpoints, isNil)

	isServed := func(e subjects.Endpoint) bool { return b.Serves(e.Subject) }
	if !slices.ContainsFunc(g.Endpoints(), isServed) {
		return nil
	}
	return b
}

// Serves reports whether the bridge has an endpoint for a subject with wildcards.
func (b *Bridge) Serves(subject string) bool {
	return slices.ContainsFunc(b.Endpoints,
		func(e *micro.EndpointStats) bool { return e.Subject == subject })
}

// QueueGroup is the group of bridges that share the requests.
func (b *Bridge) QueueGroup() string {
	if len(b.Endpoints) == 0 {
		return ""
	}
	return b.Endpoints[0].QueueGroup
}

// ErrOthers means that only bridges of other services have answered.
var ErrOthers = errors.New("the bridges that answer serve other prefixes")

// Bridges returns what all bridges of a service say about themselves, in the order of their ids.
// Errors: ErrNoBridge, ErrOthers, nats.ErrPermissionViolation, and nats.ErrTimeout without an
// answer.
func Bridges(ctx context.Context, nc *nats.Conn, g subjects.Grammar) ([]*Bridge, error) {
	never := func(*Bridge) bool { return false }
	all, err := ask(ctx, nc, g, "$SRV.INFO.pqbridge", nil, never)
	slices.SortFunc(all, func(a, b *Bridge) int { return strings.Compare(a.ID, b.ID) })
	return all, err
}

// ask returns what the bridges of a service reply, until isLast says that there is no further one.
func ask(
	ctx context.Context, nc *nats.Conn, g subjects.Grammar, subject string, payload []byte,
	isLast func(*Bridge) bool,
) (all []*Bridge, err error) {
	asked := time.Now()
	wait := FirstAnswer
	err = request(ctx, nc, subject, payload, func(m *nats.Msg) (next time.Duration) {
		if b := Parse(g, m.Data); b != nil {
			b.Asked, b.Arrived = asked, time.Now()
			all = append(all, b)
			wait = moreAnswers
			if isLast(b) {
				wait = 0
			}
		}
		return wait
	})

	switch {
	case errors.Is(err, nats.ErrNoResponders):
		err = client.ErrNoBridge
	case err == nil && len(all) == 0:
		err = ErrOthers
	}
	return all, err
}

// request calls note with each reply, which says how long to wait for the next one, 0 to wait no
// more. It returns an error if there was none.
func request(
	ctx context.Context, nc *nats.Conn, subject string, payload []byte,
	note func(*nats.Msg) (next time.Duration),
) error {
	inbox := nc.NewInbox()
	replies, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = replies.Unsubscribe() }() // fails only if the connection has ended

	err = Publish(ctx, nc, subject, inbox, payload)
	replied := false
	for wait := FirstAnswer; err == nil; {
		within, cancel := context.WithTimeout(ctx, wait)
		var m *nats.Msg
		m, err = replies.NextMsgWithContext(within)
		cancel()
		if err == nil {
			wait, replied = note(m), true
		}
		if wait == 0 || err != nil && replied && ctx.Err() == nil {
			return nil
		}
	}

	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return nats.ErrTimeout
	}
	return err
}

// Publish sends a request. It returns nats.ErrPermissionViolation if the server refuses that, in
// which case there is no reply.
func Publish(
	ctx context.Context, nc *nats.Conn, subject, replies string, payload []byte,
) error {
	within, cancel := context.WithTimeout(ctx, FirstAnswer)
	defer cancel()

	before := nc.LastError()
	err := nc.PublishRequest(subject, replies, payload)
	if err == nil {
		err = nc.FlushWithContext(within)
	}
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}

	// The server refuses a request before it answers the flush.
	refused, about := nc.LastError(), fmt.Sprintf("Publish to %q", subject)
	if refused != before && errors.Is(refused, nats.ErrPermissionViolation) &&
		strings.Contains(refused.Error(), about) {
		return refused
	}
	return nil
}
