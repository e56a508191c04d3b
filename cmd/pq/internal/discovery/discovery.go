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

// serviceName is the name of bridges in service discovery.
const serviceName = "pqbridge"

const (
	// FirstAnswer is how long to wait for the first bridge, moreAnswers for each further one.
	FirstAnswer = 2 * time.Second
	moreAnswers = 200 * time.Millisecond
)

// Ask asks all bridges something and calls receive with each answer. Without bridges that is
// ErrNoBridge, without an answer nats.ErrTimeout.
func Ask(ctx context.Context, nc *nats.Conn, asked micro.Verb, receive func(*nats.Msg) error) error {
	subject, err := micro.ControlSubject(asked, serviceName, "")
	if err != nil {
		return err
	}

	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = answers.Unsubscribe() }() // fails only if the connection has ended
	if err := nc.PublishRequest(subject, inbox, nil); err != nil {
		return err
	}

	for wait := FirstAnswer; ; wait = moreAnswers {
		within, cancel := context.WithTimeout(ctx, wait)
		m, err := answers.NextMsgWithContext(within)
		cancel()
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return client.ErrNoBridge
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && wait == moreAnswers:
			return nil
		case err != nil:
			return nats.ErrTimeout
		}

		if err := receive(m); err != nil {
			return err
		}
	}
}

// Bridge is what a bridge says about itself, between two times.
type Bridge struct {
	micro.Info
	Asked, Arrived time.Time
}

// Bridges returns what all bridges say about themselves, in the order of their ids.
func Bridges(ctx context.Context, nc *nats.Conn) ([]Bridge, error) {
	var all []Bridge
	asked := time.Now()
	err := Ask(ctx, nc, micro.InfoVerb, func(m *nats.Msg) error {
		b := Bridge{Asked: asked, Arrived: time.Now()}
		if err := json.Unmarshal(m.Data, &b.Info); err != nil {
			return fmt.Errorf("the answer of a bridge on %s: %w", m.Subject, err)
		}
		all = append(all, b)
		return nil
	})
	slices.SortFunc(all, func(a, b Bridge) int { return strings.Compare(a.ID, b.ID) })
	return all, err
}

// Serves reports whether the bridge has an endpoint for a subject with wildcards.
func (b *Bridge) Serves(subject string) bool {
	return slices.ContainsFunc(b.Endpoints, func(e micro.EndpointInfo) bool { return e.Subject == subject })
}
