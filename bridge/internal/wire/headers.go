// Package wire has what the bridge and its rooms share about NATS: how large headers are, and what
// subscriptions have still to handle.
package wire

import "strings"

const (
	// BlockStart begins the headers of a message, and CRLF ends each line of them.
	BlockStart = "NATS/1.0" + CRLF
	CRLF       = "\r\n"
)

// importedReplies is the start of the reply subjects of requests that came from another NATS account
// through an import.
const importedReplies = "_R_."

// Imported reports whether a reply subject belongs to a request from another NATS account. NATS lets
// nobody publish with such a reply subject.
func Imported(reply string) bool { return strings.HasPrefix(reply, importedReplies) }

// HeaderSize returns the number of bytes that h takes in a message.
func HeaderSize(h map[string][]string) int {
	if len(h) == 0 {
		return 0
	}
	return len(BlockStart) + LinesSize(h) + len(CRLF)
}

// LinesSize is HeaderSize without what begins and ends the headers.
func LinesSize(h map[string][]string) (n int) {
	for name, values := range h {
		for _, value := range values {
			n += len(name) + len(": ") + len(value) + len(CRLF)
		}
	}
	return n
}

// HeaderMemory estimates the bytes that h takes in memory beyond those in a message.
func HeaderMemory(h map[string][]string) (n int) {
	const each = 64
	for _, values := range h {
		n += each + each/2*len(values)
	}
	return n
}

// Shorten limits text that clients chose before it is logged.
func Shorten(text string) string {
	text = WithoutToken(text)
	const limit = 256
	if len(text) > limit {
		return text[:limit] + "..."
	}
	return text
}

// WithoutToken shortens the token of a lease in text that may contain the subject of an acknowledgement. Whoever reads
// a token could acknowledge the item.
func WithoutToken(text string) string {
	const verb, shown = ".ack.", 4
	before, token, found := strings.Cut(text, verb)
	if !found || len(token) <= shown {
		return text
	}
	return before + verb + token[:shown] + "..."
}
