package dashboard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// rightTime is how long it is remembered what the user may do, and unknownTime that somebody did
	// not answer.
	rightTime   = time.Minute
	unknownTime = 5 * time.Second
	// probeTime bounds the question.
	probeTime = 2 * time.Second
)

// Probes are requests that every bridge refuses as bad, with nothing changed, if the server lets
// them pass.
var (
	badHeader  = nats.Header{subjects.HeaderDelay: {"?"}} // of a push
	badPayload = []byte(`{"?":0}`)                        // of all others
)

// verbs are those that the rights are about, in a kind of queues.
func (c *can) verbs(fifo bool) map[subjects.Verb]*bool {
	all := map[subjects.Verb]*bool{
		subjects.Config: &c.Config, subjects.Purge: &c.Purge, subjects.Remove: &c.Remove,
		subjects.Redrive: &c.Redrive, subjects.Release: &c.Release,
	}
	if fifo {
		all[subjects.Enqueue] = &c.Push
	} else {
		all[subjects.Push], all[subjects.Move] = &c.Push, &c.Move
	}
	return all
}

// may returns what the NATS user may do to a queue. The server is asked, and where it does not say,
// the bridges are, with requests that change nothing.
func (g *gateway) may(ctx context.Context, q queueRef) can {
	return g.rights.get(q, func(before can) (can, time.Duration) {
		permissions := g.permissions(ctx)
		c := before
		var asked sync.WaitGroup
		var unsure atomic.Bool
		for verb, right := range c.verbs(q.FIFO()) {
			subject, err := g.subject(q, verb)
			if err != nil || permissions != nil {
				*right = err == nil && permissions.Allows(subject)
				continue
			}
			asked.Go(func() {
				if allowed, certain := g.probe(ctx, subject, verb); certain {
					*right = allowed
				} else {
					unsure.Store(true) // what was so a minute ago, still is
				}
			})
		}
		asked.Wait()

		switch {
		case ctx.Err() != nil:
			return before, 0
		case unsure.Load():
			return c, unknownTime
		}
		return c, rightTime
	})
}

// permissions returns what the NATS server says that the user may publish, nil if it may not ask
// that.
func (g *gateway) permissions(ctx context.Context) *discovery.Permissions {
	return g.allowed.get(struct{}{}, func(*discovery.Permissions) (*discovery.Permissions, time.Duration) {
		var user *discovery.User
		err := g.send(ctx, discovery.UserSubject, func(ctx context.Context) (err error) {
			user, err = discovery.LoggedIn(ctx, g.nc)
			return err
		})
		switch {
		case errors.Is(err, errAway) || ctx.Err() != nil:
			return nil, 0
		case err != nil:
			return nil, rightTime
		}
		return &user.Permissions.Publish, rightTime
	})
}

// probe asks for something that is refused, and reports whether a bridge did that.
func (g *gateway) probe(ctx context.Context, subject string, verb subjects.Verb) (allowed, certain bool) {
	m := &nats.Msg{Subject: subject, Data: badPayload}
	if verb == subjects.Push || verb == subjects.Enqueue {
		m.Header, m.Data = badHeader, nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	err := g.send(ctx, subject, func(ctx context.Context) error {
		_, err := g.nc.RequestMsgWithContext(ctx, m)
		return err
	})
	return err == nil, err == nil || errors.As(err, new(*refusedError))
}
