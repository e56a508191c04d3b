package leaf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server/gsl"

	"github.com/pqbridge/pqbridge/bridge/internal/signal"
)

const (
	// maxWrite is how much is written at a time, to tell a slow server from one that reads nothing.
	maxWrite = 256 << 10
	// keptBuffer is the largest buffer that is used again.
	keptBuffer = 1 << 20
	// maxSubject keeps subject, reply and sizes within a line.
	maxSubject = 16 << 10
	// commandRoom is the room for commands besides messages: mostly answers to pings.
	commandRoom = 64 << 10
	// lastWords is how long to wait for the server's error after a write failed.
	lastWords = time.Second
	// maxSilent is how many pings may go without a word from the server.
	maxSilent = 30
)

// outgoing is what waits to be written. One goroutine writes all of it at once.
type outgoing struct {
	wake    chan struct{} // there is something to write
	written chan struct{} // closed when the writer has ended

	mu      sync.Mutex
	buffer  []byte
	writing int            // bytes that are being written
	biggest int            // bytes of the largest message published so far
	pongs   []func() error // to call when the pings in flight are answered, in order
	exports *permissions   // what may be published
}

// Publish sends a message to all who subscribe to its subject, but not to queue groups. It copies
// the message and does not wait. Messages reach the server in order, or are lost with the
// connection. Errors: ErrOffline, ErrPending, ErrTooLarge, ErrDenied, ErrInvalid.
func (c *Conn) Publish(m *Message) error {
	if err := m.check(); err != nil {
		return err
	}
	online := c.online.Load()
	if online == nil {
		return ErrOffline
	}
	return online.publish(m)
}

// Flush returns when the server has received all that was published before. Errors: ErrOffline, or
// the context's.
func (c *Conn) Flush(ctx context.Context) error {
	online := c.online.Load()
	if online == nil {
		return ErrOffline
	}

	answered := make(chan struct{})
	online.ping(func() error { close(answered); return nil })
	select {
	case <-answered:
		return nil
	case <-online.ctx.Done():
		return ErrOffline
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Barrier calls f once Receive has had all that the server has sent before, from the same
// goroutine. It never does if the connection ends first, and does so at once if there is none.
func (c *Conn) Barrier(f func()) {
	online := c.online.Load()
	if online == nil {
		f()
		return
	}
	online.ping(func() error { f(); return nil })
}

// blanks end a part of a line.
const blanks = " \t\r\n"

// check reports what would break the line, or the protocol.
func (m *Message) check() error {
	begins := bytes.HasPrefix(m.Header, []byte("NATS/1.0"))
	ends := bytes.HasSuffix(m.Header, []byte("\r\n\r\n"))
	switch {
	case !valid(m.Subject, false), len(m.Subject) > maxSubject:
		return fmt.Errorf("%w: subject %s", ErrInvalid, snippet(m.Subject))
	case strings.ContainsAny(m.Reply, blanks), len(m.Reply) > maxSubject:
		return fmt.Errorf("%w: reply %s", ErrInvalid, snippet(m.Reply))
	case len(m.Header) > 0 && !(begins && ends):
		return fmt.Errorf("%w: header of a message to %s", ErrInvalid, snippet(m.Subject))
	}

	return nil
}

// valid reports whether a subject can be sent. It must have no blanks and no empty token, and
// wildcards only if they are allowed. A server accepts anything else as a subject.
func valid(subject string, wildcards bool) bool {
	if strings.ContainsAny(subject, blanks) {
		return false
	}

	rest := subject
	for more := true; more; {
		var token string
		token, rest, more = strings.Cut(rest, ".")
		if token == "" || token == "*" && !wildcards || token == ">" && (!wildcards || more) {
			return false
		}
	}

	return true
}

func (s *session) publish(m *Message) error {
	size := len(m.Header) + len(m.Payload)
	if allowed := s.parser.maxPayload; size > allowed {
		return fmt.Errorf("%w: %d bytes, %d are allowed", ErrTooLarge, size, allowed)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case s.ctx.Err() != nil:
		return ErrOffline
	case !s.exports.publish(m.Subject):
		const text = "%w: allow the leaf node's user to publish to %s"
		return fmt.Errorf(text, ErrDenied, snippet(m.Subject))
	case len(s.buffer)+s.writing+size > s.conn.limits.pending:
		return ErrPending
	}

	line := appendLine(s.buffer, m)
	s.buffer = append(append(append(line, m.Header...), m.Payload...), "\r\n"...)
	s.biggest = max(s.biggest, size)
	signal.To(s.wake)
	return nil
}

// appendLine appends the line that parser.message parses.
func appendLine(to []byte, m *Message) []byte {
	if len(m.Header) > 0 {
		to = append(to, 'H')
	} else {
		to = append(to, 'L')
	}
	to = append(append(append(to, "MSG "...), m.Subject...), ' ')
	if m.Reply != "" {
		to = append(append(to, m.Reply...), ' ')
	}
	if len(m.Header) > 0 {
		to = append(strconv.AppendInt(to, int64(len(m.Header)), 10), ' ')
	}
	return append(strconv.AppendInt(to, int64(len(m.Header)+len(m.Payload)), 10), "\r\n"...)
}

// command sends a line.
func (s *session) command(parts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commandLocked(parts...)
}

func (s *session) commandLocked(parts ...string) {
	for _, part := range parts {
		s.buffer = append(s.buffer, part...)
	}
	s.buffer = append(s.buffer, "\r\n"...)
	if len(s.buffer) > s.conn.limits.pending+commandRoom {
		s.abort(ErrPending)
	}
	signal.To(s.wake)
}

// ping sends PING. The reader calls answered when the PONG arrives.
func (s *session) ping(answered func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pongs = append(s.pongs, answered)
	s.commandLocked("PING")
}

// answered calls what the first ping in flight has waited for.
func (s *session) answered() error {
	s.mu.Lock()
	next := func() error { return nil }
	if len(s.pongs) > 0 {
		next, s.pongs = s.pongs[0], s.pongs[1:]
	}
	s.mu.Unlock()
	return next()
}

// line returns the line that begins or ends a subscription.
func (sub Subscription) line(op string) string {
	switch {
	case sub.Queue == "":
		return op + " " + sub.Subject
	case op == "LS+":
		return "LS+ " + sub.Subject + " " + sub.Queue + " 1"
	}

	return op + " " + sub.Subject + " " + sub.Queue
}

// write writes what waits, and pings, until the connection ends or a write fails.
func (s *session) write() {
	defer close(s.written)
	interval := time.NewTicker(s.conn.limits.ping)
	defer interval.Stop()

	var spare []byte
	silent := 0
	for {
		select {
		case <-s.ctx.Done():
			return
		// A server that answers no pings is gone, although the connection seems to live.
		case <-interval.C:
			if silent++; s.spoke.Swap(false) {
				silent = 0
			}
			if silent >= maxSilent {
				s.abort(fmt.Errorf("%w: no answer to %d pings", errSilent, silent))
				return
			}
			sent := time.Now()
			s.ping(func() error { s.heard = sent; return nil })
			continue
		case <-s.wake:
		}

		// Take all that waits. Meanwhile the next batch gathers in the spare buffer.
		s.mu.Lock()
		batch := s.buffer
		s.buffer, s.writing = spare[:0], len(batch)
		s.mu.Unlock()

		// The server may still say why it reads no more.
		if err := s.writeAll(batch); err != nil {
			last := time.AfterFunc(lastWords, func() { s.abort(err) })
			defer last.Stop()
			<-s.ctx.Done()
			return
		}

		s.mu.Lock()
		s.writing = 0
		s.mu.Unlock()
		if spare = batch; cap(spare) > keptBuffer {
			spare = nil
		}
	}
}

func (s *session) writeAll(batch []byte) error {
	timeout := s.conn.limits.write
	for len(batch) > 0 {
		n := min(len(batch), maxWrite)
		_ = s.raw.SetWriteDeadline(time.Now().Add(timeout)) // if it fails, so does the write
		if _, err := s.net.Write(batch[:n]); errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("%w: it has not read for %v", errSilent, timeout)
		} else if err != nil {
			return err
		}
		batch = batch[n:]
	}

	return nil
}

// permissions are what the server's user may publish, or subscribe to. nil allows everything.
type permissions struct {
	Allow patterns `json:"allow"`
	Deny  patterns `json:"deny"`
}

// patterns are subjects with or without wildcards, nil if there are none. Patterns for a queue
// group ("subject group") do not concern leaf nodes, and match nothing here.
type patterns struct{ *gsl.SimpleSublist }

// UnmarshalJSON implements json.Unmarshaler for a list of subjects.
func (p *patterns) UnmarshalJSON(text []byte) error {
	var subjects []string
	err := json.Unmarshal(text, &subjects)
	if len(subjects) > 0 {
		p.SimpleSublist = gsl.NewSimpleSublist()
	}
	for _, subject := range subjects {
		_ = p.Insert(subject, struct{}{}) // an invalid subject matches nothing
	}
	return err
}

// publish reports whether a subject may be published. Like the server, it checks neither replies to
// other accounts nor the prefix of replies to other clusters.
func (p *permissions) publish(subject string) bool {
	if p == nil {
		return true
	}

	subject, _ = WithoutGateway(subject)
	if strings.HasPrefix(subject, "_R_.") {
		return true
	}

	allow, deny := p.Allow.SimpleSublist, p.Deny.SimpleSublist
	if deny != nil && deny.HasInterest(subject) {
		return false
	}
	return allow == nil || allow.HasInterest(subject)
}

// WithoutGateway returns the inbox of a request, and whether the request came through a gateway.
// The gateway makes the inbox "_GR_.<cluster>.<server>.<inbox>", and forgets that name after a
// while.
func WithoutGateway(reply string) (inbox string, via bool) {
	if parts := strings.SplitN(reply, ".", 4); len(parts) == 4 && parts[0] == "_GR_" {
		return parts[3], true
	}
	return reply, false
}

// subscribe reports whether any part of a subject, which mostly ends in >, may be subscribed to.
// The server accepts the subscription anyway, and sends only allowed messages.
func (p *permissions) subscribe(subject string) bool {
	if p == nil || p.Allow.SimpleSublist == nil {
		return true
	}
	return p.Allow.HasInterestStartingIn(strings.TrimSuffix(subject, ".>"))
}
