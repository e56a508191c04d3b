// Package discovery asks the bridges, and the NATS server, what they say about themselves.
package discovery

import (
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
)

const (
	// FirstAnswer is how long to wait for the first bridge, moreAnswers for each further one.
	FirstAnswer = 2 * time.Second
	moreAnswers = 200 * time.Millisecond
)

// Bridge is what a bridge says about itself, between two times.
type Bridge struct {
	micro.Info
	Asked, Arrived time.Time
}

// Bridges returns what all bridges say about themselves, in the order of their ids. Without bridges
// that is ErrNoBridge, without an answer nats.ErrTimeout.
func Bridges(ctx context.Context, nc *nats.Conn) (all []Bridge, err error) {
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}

	defer func() { _ = answers.Unsubscribe() }() // fails only if the connection has ended
	asked := time.Now()
	if err := nc.PublishRequest("$SRV.INFO.pqbridge", inbox, nil); err != nil {
		return nil, err
	}

	for wait := FirstAnswer; ; wait = moreAnswers {
		within, cancel := context.WithTimeout(ctx, wait)
		m, err := answers.NextMsgWithContext(within)
		cancel()
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return nil, client.ErrNoBridge
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil && len(all) == 0:
			return nil, nats.ErrTimeout
		case err != nil:
			slices.SortFunc(all, func(a, b Bridge) int { return strings.Compare(a.ID, b.ID) })
			return all, nil
		}

		b := Bridge{Asked: asked, Arrived: time.Now()}
		if err := json.Unmarshal(m.Data, &b.Info); err != nil {
			return nil, fmt.Errorf("the answer of a bridge on %s: %w", m.Subject, err)
		}
		all = append(all, b)
	}
}

// Serves reports whether the bridge has an endpoint for a subject with wildcards.
func (b *Bridge) Serves(subject string) bool {
	return slices.ContainsFunc(b.Endpoints,
		func(e micro.EndpointInfo) bool { return e.Subject == subject })
}

// QueueGroup is the group of bridges of which one gets each request.
func (b *Bridge) QueueGroup() string {
	if len(b.Endpoints) == 0 {
		return ""
	}
	return b.Endpoints[0].QueueGroup
}
