package main

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
	"github.com/pqbridge/pqbridge/subjects"
)

// serviceName is the name of bridges in service discovery.
const serviceName = "pqbridge"

const (
	// firstAnswer is how long to wait for the first bridge, moreAnswers for each further one.
	firstAnswer = 2 * time.Second
	moreAnswers = 200 * time.Millisecond
)

// discover asks all bridges something and calls receive with each answer. Without bridges that is
// ErrNoBridge, without an answer nats.ErrTimeout.
func (s *session) discover(ctx context.Context, asked micro.Verb, receive func(*nats.Msg) error) error {
	subject, err := micro.ControlSubject(asked, serviceName, "")
	if err != nil {
		return err
	}
	inbox := s.nc.NewInbox()
	answers, err := s.nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = answers.Unsubscribe() }() // fails only if the connection has ended
	if err := s.nc.PublishRequest(subject, inbox, nil); err != nil {
		return err
	}
	for wait := firstAnswer; ; wait = moreAnswers {
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

// announced is what a bridge says about itself.
type announced struct {
	micro.Info
	asked, arrived time.Time
}

// bridges returns what all bridges say about themselves, in the order of their ids.
func (s *session) bridges(ctx context.Context) ([]announced, error) {
	var all []announced
	asked := time.Now()
	err := s.discover(ctx, micro.InfoVerb, func(m *nats.Msg) error {
		b := announced{asked: asked, arrived: time.Now()}
		if err := json.Unmarshal(m.Data, &b.Info); err != nil {
			return fmt.Errorf("the answer of a bridge on %s: %w", m.Subject, err)
		}
		all = append(all, b)
		return nil
	})
	slices.SortFunc(all, func(a, b announced) int { return strings.Compare(a.ID, b.ID) })
	return all, err
}

// serves reports whether the bridge has an endpoint for a subject with wildcards.
func (b *announced) serves(subject string) bool {
	return slices.ContainsFunc(b.Endpoints, func(e micro.EndpointInfo) bool { return e.Subject == subject })
}

// outdated adds to the error of a bad request that a bridge is too old for it.
func (s *session) outdated(verb subjects.Verb, kind subjects.Kind, err error) error {
	if !errors.Is(err, client.ErrBadRequest) {
		return err
	}
	subject := s.endpoint(verb, kind)
	bridges, failed := s.bridges(s.usable)
	if failed != nil || subject == "" {
		return err
	}
	for i := range bridges {
		if b := &bridges[i]; !b.serves(subject) {
			return fmt.Errorf("a bridge does not know %s yet (version %s, id %s): upgrade it", subject, b.Version, b.ID)
		}
	}
	return err
}

// endpoint returns the subject, with wildcards, of requests with this verb.
func (s *session) endpoint(verb subjects.Verb, kind subjects.Kind) string {
	for _, e := range s.grammar.Endpoints() {
		if e.Kind == kind && e.Verb == verb {
			return e.Subject
		}
	}
	return ""
}
