package client

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/nats-io/nats.go"
)

// A NATS server answers nothing to a request that the connection may not make. It only tells the
// connection which subject it has refused, and the NATS client tells the connection's error
// handler. So linkOf puts its own handler in front of that handler, to find the request.

// refusalIn returns the last error of a connection if it is a refusal.
func refusalIn(nc *nats.Conn) error {
	if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	return nil
}

// links has the link of each connection that a Client was made for.
var links = struct {
	sync.Mutex
	of map[weak.Pointer[nats.Conn]]*link
}{of: map[weak.Pointer[nats.Conn]]*link{}}

// linkOf returns the link of a connection. The first call has it handle the errors of the
// connection, before its error handler.
func linkOf(nc *nats.Conn) *link {
	links.Lock()
	defer links.Unlock()

	key := weak.Make(nc)
	if l := links.of[key]; l != nil {
		return l
	}
	l := &link{
		inboxes:  map[string]*inbox{},
		underWay: map[string][]*inbox{},
		changed:  make(chan struct{}),
		exact:    numberOf(nc),
	}
	links.of[key] = l
	runtime.AddCleanup(nc, func(key weak.Pointer[nats.Conn]) {
		links.Lock()
		defer links.Unlock()
		delete(links.of, key)
	}, key)

	next := nc.ErrorHandler()
	nc.SetErrorHandler(func(nc *nats.Conn, s *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			l.handle(nc, err)
			err = withoutToken{err}
		}
		if next != nil {
			next(nc, s, err)
		}
	})
	l.handled = refusalIn(nc) // by the handler that was there
	return l
}

var refusal = regexp.MustCompile(`(Publish|Subscription) to ("(?:[^"\\]|\\.)*")`)

// handle ends the request that a refusal is about, if it is about one.
func (l *link) handle(nc *nats.Conn, err error) {
	l.Lock()
	doubts := l.doubts
	l.Unlock()
	number, latest := numberOf(nc), nc.LastError()

	l.Lock()
	defer l.Unlock()
	if m := refusal.FindStringSubmatch(err.Error()); m != nil {
		subject, _ := strconv.Unquote(m[2]) // otherwise nobody uses it
		if m[1] == "Publish" {
			l.refuse(subject, err, l.exact == number)
		} else if i := l.inboxes[subject]; i != nil {
			l.hears = 0
			l.doubts++
			i.refuse(err)
		}
	}

	if err == latest && doubts == l.doubts { // all earlier refusals are handled
		l.exact = number
	}
	l.handled = err
	close(l.changed)
	l.changed = make(chan struct{})
}

// refuse ends the newest request on a subject, because the server has refused one. The refusal does
// not say which: it is certainly this request if no other on the subject is under way, and no
// refusal of an earlier one is still to come. Otherwise its outcome is unknown.
func (l *link) refuse(subject string, err error, exact bool) {
	list := l.underWay[subject]
	if len(list) == 0 {
		return
	}

	err = withoutToken{err}
	if exact && len(list) == 1 {
		err = fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	newest := list[len(list)-1]
	l.remove(subject, newest)
	newest.refuse(err)
}

// refuse ends the request of an inbox.
func (i *inbox) refuse(err error) {
	select {
	case i.refused <- err:
	default: // it has ended already
	}
}

// remove notes that a request on a subject is no longer under way, and reports whether it was. The
// caller holds the lock.
func (l *link) remove(subject string, i *inbox) bool {
	list := l.underWay[subject]
	at := slices.Index(list, i)
	if at < 0 {
		return false
	}
	if len(list) == 1 {
		delete(l.underWay, subject)
	} else {
		l.underWay[subject] = slices.Delete(list, at, at+1)
	}
	return true
}

// doubt notes that the refusal of a request that is not under way may still come.
func (l *link) doubt() {
	l.Lock()
	defer l.Unlock()
	l.exact = 0
	l.doubts++
}

// hasHandled reports whether the last refusal that was handled is this one.
func (l *link) hasHandled(err error) bool {
	l.Lock()
	defer l.Unlock()
	return l.handled == err
}

// drainTime is how long a request that is given up waits for NATS to confirm that nothing more is
// coming.
const drainTime = 500 * time.Millisecond

// publish publishes the request of an inbox.
func (c connection) publish(m *nats.Msg, i *inbox) error {
	i.published, i.before = m.Subject, refusalIn(c.nc)
	c.link.Lock()
	c.link.underWay[m.Subject] = append(c.link.underWay[m.Subject], i)
	c.link.Unlock()
	return c.nc.PublishMsg(m)
}

// decide notes that the request of an inbox was answered or given up. It reports whether the
// request was under way: it may have been refused.
func (i *inbox) decide() bool {
	if i.published == "" {
		return false
	}
	i.link.Lock()
	defer i.link.Unlock()
	subject := i.published
	i.published = ""
	return i.link.remove(subject, i)
}

// ended returns the error of a request whose context has ended. It names a refusal that has come
// since, in case the error handler is late or was replaced.
func (i *inbox) ended(ctx context.Context) error {
	last := refusalIn(i.nc)
	if i.published == "" || last == nil || last == i.before ||
		!strings.Contains(last.Error(), fmt.Sprintf("Publish to %q", i.published)) {
		return ctx.Err()
	}
	return fmt.Errorf("%w, and %w", endOf(ctx), withoutToken{last})
}

// catchUp waits until all refusals of earlier messages have been handled. It reports whether they
// certainly have: not if the connection was lost, or the error handler of the program is slow or
// was replaced.
func (c connection) catchUp(ctx context.Context) bool {
	if c.nc.FlushWithContext(ctx) != nil {
		return false
	}

	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	for {
		c.link.Lock()
		handled, changed := c.link.handled, c.link.changed
		c.link.Unlock()

		// The NATS client hands its errors over in order, and forgets them when it reconnects.
		last := c.nc.LastError()
		isRefusal := errors.Is(last, nats.ErrPermissionViolation)
		switch {
		case last == handled:
			return isRefusal || c.nc.Stats().Reconnects == 0
		case !isRefusal:
			return false
		}

		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// checkReplies returns an error if the connection may not subscribe to a new inbox. A request would
// still be carried out then, but nobody would know. It asks the server once for each connection,
// and again after the connection was lost or another inbox was refused.
func (c connection) checkReplies(ctx context.Context, i *inbox) error {
	number := numberOf(c.nc)
	c.link.Lock()
	hears, doubts := c.link.hears, c.link.doubts
	c.link.Unlock()
	if hears == number {
		return nil
	}

	// If this fails although ctx has not ended, the connection was lost: send waits for it.
	known := c.catchUp(ctx)
	select {
	case err := <-i.refused:
		return err
	default:
	}
	if ctx.Err() != nil {
		return endOf(ctx)
	}

	// The error handler may be slow or replaced. Others that began at the same time may have hidden
	// the error with theirs, which is the same.
	all := i.prefix[:strings.LastIndex(i.prefix[:len(i.prefix)-1], ".")+1]
	err := refusalIn(c.nc)
	if err != nil && err != i.before && strings.Contains(err.Error(), `Subscription to "`+all) {
		return err
	}

	c.link.Lock()
	defer c.link.Unlock()
	if known && doubts == c.link.doubts {
		c.link.hears = number
	}
	return nil
}
