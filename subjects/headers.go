package subjects

import "strings"

// Headers of requests and replies. NATS compares header names byte by byte.
const (
	// HeaderPriority is the priority of a push, a decimal int64, and that of
	// the item in replies to pop and peek.
	HeaderPriority = "Pq-Priority"

	// HeaderID is the id of the item, in replies to pop and peek.
	HeaderID = "Pq-Id"

	// HeaderPushedAt is when the item was pushed, in replies to pop and peek.
	HeaderPushedAt = "Pq-Pushed-At"

	// HeaderError says, in replies to requests that failed, what was wrong
	// and what would be right. The name is that of NATS's service protocol.
	HeaderError = "Nats-Service-Error"

	// HeaderErrorCode is the number that goes with HeaderError.
	HeaderErrorCode = "Nats-Service-Error-Code"

	// HeaderMsgID is the name under which NATS clients send the id of a
	// message that is to be stored once.
	HeaderMsgID = "Nats-Msg-Id"
)

// reserved begins the names of the headers that are ours to define.
const reserved = "Pq-"

// RequestHeaderKnown reports whether a request may carry the header name. Names
// that begin with "Pq-", in upper or lower case, are ours: of those only
// [HeaderPriority] is known, and only spelled like that, because a request
// that relies on a header we do not act on must fail, not half work. All other
// names are the client's own.
func RequestHeaderKnown(name string) bool {
	ours := len(name) >= len(reserved) && strings.EqualFold(name[:len(reserved)], reserved)
	return !ours || name == HeaderPriority
}
