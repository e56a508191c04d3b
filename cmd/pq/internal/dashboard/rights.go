package dashboard

import (
	"context"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/subjects"
)

// rightTime is how long it is remembered what the user may do.
const rightTime = time.Minute

// anyQueue stands for a queue that nobody has named.
var anyQueue = queueRef{subjects.Priority.Short(), "any"}

// may returns what the NATS user may do to a queue. If the server does not say that, pages offer
// everything, and the server refuses it when somebody tries.
func (g *gateway) may(ctx context.Context, q queueRef) can {
	permissions := g.permissions(ctx)
	allows := func(verb subjects.Verb) bool {
		subject, err := g.subject(q, verb)
		return err == nil && (permissions == nil || permissions.Allows(subject))
	}

	return can{
		Push:   allows(subjects.Push) || allows(subjects.Enqueue),
		Config: allows(subjects.Config), Purge: allows(subjects.Purge),
		Remove: allows(subjects.Remove), Move: allows(subjects.Move),
		Redrive: allows(subjects.Redrive), Release: allows(subjects.Release),
		Schedule: allows(subjects.Schedule), Unschedule: allows(subjects.Unschedule),
	}
}

// permissions returns what the NATS server says that the user may publish, nil if it may not ask
// that.
func (g *gateway) permissions(ctx context.Context) *discovery.Permissions {
	type allowed = *discovery.Permissions
	return g.allowed.get(struct{}{}, func(allowed) (allowed, time.Duration) {
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
