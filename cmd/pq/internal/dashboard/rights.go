package dashboard

import (
	"context"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/subjects"
)

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
		Push:   allows(subjects.Push),
		Config: allows(subjects.Config), Purge: allows(subjects.Purge),
		Remove: allows(subjects.Remove), Move: allows(subjects.Move),
		Redrive: allows(subjects.Redrive), Release: allows(subjects.Release),
		Schedule: allows(subjects.Schedule), Unschedule: allows(subjects.Unschedule),
	}
}

// permissions returns what the NATS server says that the user may publish, nil if it may not ask
// that.
func (g *gateway) permissions(ctx context.Context) *discovery.Permissions {
	ask := func() (publish *discovery.Permissions, err error) {
		err = g.send(ctx, g.slots, discovery.UserSubject, func(ctx context.Context) error {
			user, err := discovery.LoggedIn(ctx, g.nc)
			if err == nil {
				publish = &user.Permissions.Publish
			}
			return err
		})
		return publish, err
	}
	publish, _ := g.allowed.get(ctx, struct{}{}, ask) // after an error it is not known
	return publish
}
