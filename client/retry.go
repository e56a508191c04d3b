package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// isAny reports whether err is one of the targets.
func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// isHopeless reports whether no further attempt can succeed.
func isHopeless(err error) bool {
	return lacksPermission(err) || isAny(err, ErrBadRequest,
		nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrInvalidConnection)
}

// lacksPermission reports whether the server has refused just this request. Without ErrNotSent, the
// refusal may be of an earlier one, and the permission may be there by now.
func lacksPermission(err error) bool {
	return errors.Is(err, nats.ErrPermissionViolation) && errors.Is(err, ErrNotSent)
}

// isPassing reports whether a failed push may succeed later.
func isPassing(err error) bool {
	return isAny(err, ErrOverloaded, ErrUnavailable, ErrNoBridge, ErrUnknownOutcome, ErrNotSent) &&
		!isHopeless(err)
}

// isRefused reports whether the bridge refused a batch because of its items.
func isRefused(err error) bool { return isAny(err, ErrBadRequest, ErrTooLarge) }

// await returns nil once done is closed, or the error of ctx if ctx ends first.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done: // too, and that counts
		default:
			return endOf(ctx)
		}
	}
	return nil
}

// pause is the time between attempts. It doubles from firstPause to longestPause.
type pause struct{ last time.Duration }

const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// wait returns when the pause is over or ctx ends.
func (p *pause) wait(ctx context.Context) {
	p.last = min(max(2*p.last, firstPause), longestPause)
	select {
	case <-time.After(p.last):
	case <-ctx.Done():
	}
}
