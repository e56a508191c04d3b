package leaf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// maxWrite is how much is written at a time, so that a slow server is told from one that reads
	// nothing.
	maxWrite = 256 << 10
	// keptBuffer is the largest buffer that is used again.
	keptBuffer = 1 << 20
	// maxSubject keeps subject, reply and sizes within a line.
	maxSubject = 16 << 10
	// commandRoom is what commands may take besides messages: mostly answers to pings.
	commandRoom = 64 << 10
	// lastWords is how long to wait for the server's error after a write failed.
	lastWords = time.Second
	// maxSilent is how many intervals may pass without a word from the server.
	maxSilent = 3
)

// outgoing is what waits to be written. One goroutine writes all of it at once.
type outgoing struct {
	wake    chan struct{} // there is something to write
	written chan struct{} // closed when the writer has ended

	mu      sync.Mutex
	buffer  []byte
	writing int            // bytes that are being written
	biggest int            // of the messages that were published, in bytes
	pongs   []func() error // what to do at the answers to pings
	exports *permissions   // what may be published
}

// blanks end a part of a line.
const blanks = " \t\r\n"

// valid reports whether a subject can be sent: it has no blanks and no empty token, and wildcards
// only if they are allowed. To a server all else is a subject.
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

// check reports what would break the line, or the protocol.
func (m *Message) check() error {
	switch {
	case !valid(m.Subject, false), len(m.Subject) > maxSubject:
		return fmt.Errorf("%w: subject %s", ErrInvalid, snippet(m.Subject))
	case strings.ContainsAny(m.Reply, blanks), len(m.Reply) > maxSubject:
		return fmt.Errorf("%w: reply %s", ErrInvalid, snippet(m.Reply))
	case len(m.Header) > 0 && (!bytes.HasPrefix(m.Header, []byte("NATS/1.0")) || !bytes.HasSuffix(m.Header, []byte("\r\n\r\n"))):
		return fmt.Errorf("%w: header of a message to %s", ErrInvalid, snippet(m.Subject))
	}
	return nil
}

func (s *session) publish(m *Message) error {
	size := len(m.Header) + len(m.Payload)
	if size > s.parser.maxPayload {
		return fmt.Errorf("%w: %d bytes, %d are allowed", ErrTooLarge, size, s.parser.maxPayload)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ctx.Err() != nil:
		return ErrOffline
	case !s.exports.publish(m.Subject):
		return fmt.Errorf("%w: allow the leaf node's user to publish to %s", ErrDenied, snippet(m.Subject))
	case len(s.buffer)+s.writing+size > s.conn.limits.pending:
		return ErrPending
	}

	line := appendLine(s.buffer, m)
	s.buffer = append(append(append(line, m.Header...), m.Payload...), "\r\n"...)
	s.biggest = max(s.biggest, size)
	s.wakeUp()
	return nil
}

// appendLine appends the line that message, in parse.go, parses.
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

func (s *session) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default: // it is about to look
	}
}

// command sends a line.
func (s *session) command(parts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.appendCommand(parts...)
}

// appendCommand is command with the lock held.
func (s *session) appendCommand(parts ...string) {
	for _, part := range parts {
		s.buffer = append(s.buffer, part...)
	}
	s.buffer = append(s.buffer, "\r\n"...)
	if len(s.buffer) > s.conn.limits.pending+commandRoom {
		s.giveUp(ErrPending)
	}
	s.wakeUp()
}

// ping sends PING, and calls answered, in the reader, at the PONG.
func (s *session) ping(answered func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pongs = append(s.pongs, answered)
	s.appendCommand("PING")
}

func (s *session) answered() error {
	s.mu.Lock()
	var next func() error
	if len(s.pongs) > 0 {
		next, s.pongs = s.pongs[0], s.pongs[1:]
	}
	s.mu.Unlock()
	if next == nil {
		return nil
	}
	return next()
}

// line returns what begins or ends a subscription.
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
		case <-interval.C:
			if silent++; s.heard.Swap(false) {
				silent = 0
			}
			if silent >= maxSilent {
				s.giveUp(fmt.Errorf("%w: no answer to %d pings", errSilent, silent))
				return
			}
			s.ping(nil)
			continue
		case <-s.wake:
		}

		s.mu.Lock()
		batch := s.buffer
		s.buffer, s.writing = spare[:0], len(batch)
		s.mu.Unlock()

		if err := s.writeAll(batch); err != nil {
			last := time.AfterFunc(lastWords, func() { s.giveUp(err) })
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
	for len(batch) > 0 {
		n := min(len(batch), maxWrite)
		_ = s.raw.SetWriteDeadline(time.Now().Add(s.conn.limits.write)) // or the write fails
		if _, err := s.net.Write(batch[:n]); errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("%w: it has not read for %v", errSilent, s.conn.limits.write)
		} else if err != nil {
			return err
		}
		batch = batch[n:]
	}
	return nil
}
