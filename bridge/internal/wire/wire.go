// Package wire has what the bridge and its rooms share about NATS: how large headers are, what
// subscriptions have still to handle, and what acknowledgements do.
package wire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// BlockStart begins the headers of a message, and CRLF ends each line of them.
	BlockStart = "NATS/1.0" + CRLF
	CRLF       = "\r\n"
)

// Imported reports whether a reply subject belongs to a request that came from another NATS account
// through an import. NATS lets nobody publish with such a reply subject.
func Imported(reply string) bool { return strings.HasPrefix(reply, "_R_.") }

// NoResponders reports whether a message is what NATS answers if nobody is subscribed to the
// subject of a request. No answer of the service looks like it.
func NoResponders(m *nats.Msg) bool {
	return len(m.Data) == 0 && m.Header.Get(subjects.HeaderStatus) == "503"
}

// HeaderSize returns the number of bytes that h takes in a message.
func HeaderSize(h map[string][]string) int {
	if len(h) == 0 {
		return 0
	}
	return len(BlockStart) + LinesSize(h) + len(CRLF)
}

// LinesSize is HeaderSize without the first and the last line of the block, which have no header.
func LinesSize(h map[string][]string) (n int) {
	for name, values := range h {
		for _, value := range values {
			n += len(name) + len(": ") + len(value) + len(CRLF)
		}
	}
	return n
}

// FrameRoom returns how many bytes fewer than others a message can have that may have to come in a
// frame, because some clients cannot read its headers: a value in one of them is beyond ASCII. It
// is more than the frame takes, the header that announces it, and the token of a lease.
func FrameRoom(headers ...map[string][]string) int {
	const room = 160
	for _, h := range headers {
		for _, values := range h {
			if slices.ContainsFunc(values, beyondASCII) {
				return room
			}
		}
	}
	return 0
}

func beyondASCII(value string) bool {
	return strings.ContainsFunc(value, func(c rune) bool { return c >= utf8.RuneSelf })
}

// HeaderMemory estimates how many more bytes h takes in memory than in a message.
func HeaderMemory(h map[string][]string) (n int) {
	const each = 64
	for _, values := range h {
		n += each + each/2*len(values)
	}
	return n
}

// BlockSize returns the number of bytes that the headers of a received message took.
func BlockSize(m *nats.Msg) int { return m.Size() - len(m.Subject) - len(m.Reply) - len(m.Data) }

// CheckBlock refuses headers that a NATS server may have parsed differently from the NATS client,
// which would hide a header from one of them: lines that end in LF alone, lines without a name,
// blanks in a name or before a value, a status. size is the size of the block in bytes; added
// reports whether a server adds headers of that name.
//
// The client does not expose the raw block, only its size. Lines "name: value" that end in CR LF
// must add up to it, or exceed it by the spaces after the colons if the sender writes none. A
// server writes the headers that it adds in its own style. The check is not exact, because other
// blocks can add up to the same size. That is harmless: only headers that the client parsed are
// stored and sent on.
func CheckBlock(h nats.Header, size int, added func(name string) bool) error {
	if h == nil {
		if size > 0 {
			return errors.New("the headers cannot be read: want a line \"name: value\" for each")
		}
		return nil
	}

	lines, ofServer := 0, 0
	for name, values := range h {
		if strings.ContainsAny(name, " \t") { // also one before the colon, which others may cut off
			return fmt.Errorf("header %.64q has a blank in its name: want a name of letters, "+
				"digits and any of %s", name, subjects.HeaderPunctuation)
		}
		lines += len(values)
		if added(name) {
			ofServer += len(values)
		}
		for _, value := range values {
			if strings.IndexByte(value, '\r') >= 0 {
				return fmt.Errorf("header %.64q: its value has a CR in it", name)
			}
		}
	}

	// Each line without a space after its colon makes the block a byte smaller.
	missing := len(BlockStart) + LinesSize(h) + len(CRLF) - size
	withSpaces := 0 <= missing && missing <= ofServer
	without := lines-ofServer <= missing && missing <= lines
	if withSpaces || without {
		return nil
	}
	return errors.New("the headers can be read in more than one way: " +
		"want lines \"name: value\" or lines \"name:value\" that end in CR LF, and no status")
}

// Shorten limits text that clients chose before it is logged.
func Shorten(text string) string {
	text = subjects.HideTokens(text)
	const limit = 256
	if len(text) > limit {
		return text[:limit] + "..."
	}
	return text
}

// Backlog counts messages that were delivered to subscriptions and that no callback has handled
// yet.
func Backlog(subscriptions []*nats.Subscription) (messages, bytes int) {
	for _, s := range subscriptions {
		if m, n, err := s.Pending(); err == nil { // otherwise it has ended
			messages += m
			bytes += n
		}
	}
	return messages, bytes
}

// Await returns when callbacks have handled everything that was delivered. If ctx ends first, it
// returns how many messages are left.
func Await(ctx context.Context, subscriptions []*nats.Subscription) (left int) {
	for {
		if left, _ = Backlog(subscriptions); left == 0 || ctx.Err() != nil {
			return left
		}

		// The NATS client does not say when a callback has returned.
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// Dropped returns how many messages the NATS client has dropped because the callbacks of the
// subscriptions were too slow. A subscription forgets its number when it ends.
func Dropped(subscriptions []*nats.Subscription) (total int) {
	for _, s := range subscriptions {
		if n, err := s.Dropped(); err == nil {
			total += n
		}
	}
	return total
}

// Drain ends subscriptions. Messages already delivered to them are still handled.
func Drain(subscriptions []*nats.Subscription) {
	for _, s := range subscriptions {
		_ = s.Drain() // fails if it has ended with its connection
	}
}
