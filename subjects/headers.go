package subjects

import (
	"slices"
	"strings"
)

// MaxHeaders is how many header lines a request, or an item in a batch of pushes, may have. Reading
// and storing a header takes much longer than a byte of a value.
const MaxHeaders = 1000

// Headers of requests and replies. NATS compares header names byte by byte.
const (
	// HeaderPriority is the priority of a push, a decimal int64, and that of the item in replies.
	HeaderPriority = "Pq-Priority"
	// HeaderDelay is for how long a pushed item is held back: see ParseDelay.
	HeaderDelay = "Pq-Delay"
	// HeaderUnique is a key of a push, which no other item has as long as this one is in the queue.
	HeaderUnique = "Pq-Unique"
	// HeaderGroup is the group of an item, and HeaderWeight, of a push, how many items of the group
	// have a turn: see GroupOfPush. Replies to pop, peek and get have the first.
	HeaderGroup  = "Pq-Group"
	HeaderWeight = "Pq-Weight"

	// Headers of replies to pop, peek and get: the id of the item, when it was pushed, in
	// TimeLayout, and its [State], in the reply to a get.
	HeaderID       = "Pq-Id"
	HeaderPushedAt = "Pq-Pushed-At"
	HeaderState    = "Pq-State"
	// Headers of a leased item: how many times it was delivered, this time included, and when the
	// lease is over, in TimeLayout.
	HeaderDeliveries = "Pq-Deliveries"
	HeaderLeaseUntil = "Pq-Lease-Until"

	// Headers of an item in a dead-letter queue: the queue that it was in, why it was moved, when,
	// in TimeLayout, how many deliveries it had, and the reason of the last negative
	// acknowledgement that gave one.
	HeaderDeadQueue      = "Pq-Dead-Queue"
	HeaderDeadReason     = "Pq-Dead-Reason"
	HeaderDeadAt         = "Pq-Dead-At"
	HeaderDeadDeliveries = "Pq-Dead-Deliveries"
	HeaderDeadError      = "Pq-Dead-Error"

	// HeaderSource is in items that a queue has drawn from a stream: the name of the stream, a space,
	// and the sequence of the message there.
	HeaderSource = "Pq-Source"

	// HeaderLost says, in the reply to an acknowledgement of several leases that failed with
	// CodeConflict, which of them are lost: see FormatLost.
	HeaderLost = "Pq-Lost"
	// HeaderBatchCount ends the reply to a pop of several items: how many were sent.
	HeaderBatchCount = "Pq-Batch-Count"
	// HeaderFrames marks a message that carries items in frames: how many. See AppendFrame.
	HeaderFrames = "Pq-Frames"
	// HeaderToken is the token of a leased item in a frame, with which the subject of its
	// acknowledgements ends.
	HeaderToken = "Pq-Token"
	// HeaderHeartbeat marks a message that is neither an item nor the end of a reply: the pop still
	// waits for that many items.
	HeaderHeartbeat = "Pq-Heartbeat"

	// HeaderError says, in the reply to a request that failed, what was wrong and what would be
	// right, and HeaderErrorCode is its [Code]. The names come from NATS's service protocol.
	HeaderError     = "Nats-Service-Error"
	HeaderErrorCode = "Nats-Service-Error-Code"
	// HeaderOutcome tells the two kinds of 503 apart: with the value [OutcomeUnknown] the request
	// may have been carried out, without it a request that failed did nothing.
	HeaderOutcome = "Pq-Outcome"

	// HeaderMsgID is where NATS clients send the id of a message that should be stored only once
	// within a time.
	HeaderMsgID = "Nats-Msg-Id"
	// HeaderExpectedStream is where JetStream publishers say which stream they expect to store a
	// message. For a push that is the name of the queue.
	HeaderExpectedStream = "Nats-Expected-Stream"
	// HeaderSchedule is where NATS clients say when a message is to be delivered: see
	// ParseSchedule.
	HeaderSchedule = "Nats-Schedule"
	// HeaderTTL is where NATS clients say when a message expires: see ParseTTL.
	HeaderTTL = "Nats-TTL"
)

// OutcomeUnknown is the only value of [HeaderOutcome].
const OutcomeUnknown = "unknown"

// Reserved is the start of the header names that only the protocol may define.
const Reserved = "Pq-"

// Headers of items that a schedule has pushed: its id, and the time that the item is for, in RFC 3339.
const (
	HeaderScheduleID  = "Pq-Schedule"
	HeaderScheduledAt = "Pq-Scheduled-At"
)

// IsStored reports whether a header of the protocol's is stored with an item, and comes back with it.
func IsStored(name string) bool {
	return name == HeaderGroup || name == HeaderScheduleID || name == HeaderScheduledAt || name == HeaderSource
}

// OfItem reports whether the header of a reply is one of the item's own: not the protocol's, or of the
// schedule or source that it is from. The others are about its place in the queue or the reply itself: see ItemHeaders.
func OfItem(name string) bool {
	return !strings.HasPrefix(name, Reserved) || name == HeaderScheduleID || name == HeaderScheduledAt || name == HeaderSource
}

// IsReserved reports whether the header is the protocol's, in upper or lower case.
func IsReserved(name string) bool { return hasPrefixFold(name, Reserved) }

// IsNATS reports whether the header is NATS's, in upper or lower case.
func IsNATS(name string) bool { return hasPrefixFold(name, "Nats-") }

// RequestHeaderKnown reports whether a request may carry a header of that name. Of those that begin
// with "Pq-", in any case, only [PushHeaders] are known, and only in that spelling, because a
// request that relies on a header we do not support must fail, not half work. All other names
// belong to the client, but see [HeaderFate].
func RequestHeaderKnown(name string) bool {
	return !IsReserved(name) || slices.Contains(PushHeaders[:], name)
}

// PushHeaders are the headers that begin with [Reserved] and that a push may have; the first is for
// priority queues alone.
var PushHeaders = [...]string{HeaderPriority, HeaderDelay, HeaderUnique, HeaderGroup, HeaderWeight}

// HeaderStatus is where NATS clients put the status of a message that is the server's own.
const HeaderStatus = "Status"

// IsStatus reports whether NATS clients take a message for one of the server's own, such as "no
// responders" or "no messages". They hide it, or stop, whatever the status is.
func IsStatus(headers map[string][]string, value []byte) bool {
	return len(value) == 0 && len(headers[HeaderStatus]) > 0
}

// WhyNoStatus says why an item must not be like that, as the end of a sentence.
const WhyNoStatus = "NATS clients take it for a message of the server, such as \"no responders\", and hide it: " +
	"leave the header out, or give the item a value"

// Headers of NATS's message tracing.
const (
	// HeaderTraceParent is the header of W3C trace contexts. A NATS server ignores its case and, if
	// the account has a destination for traces, reports each message that has one to there.
	HeaderTraceParent = "traceparent"
	// HeaderTraceDest asks a NATS server to report what becomes of the message to the subject in
	// its value.
	HeaderTraceDest = "Nats-Trace-Dest"
	// TraceDisabled as the value of HeaderTraceDest makes a server report nothing, whatever other
	// headers the message has. Servers set it themselves on messages that they do not sample.
	TraceDisabled = "trace disabled"

	headerTraceHop = "Nats-Trace-Hop"
)

// Fate is what becomes of a header that is pushed with an item.
type Fate uint8

// The fates.
const (
	Kept     Fate = iota // stored, and sent with the item
	Dropped              // a NATS server's own note about the request: not stored, not sent
	Checked              // HeaderExpectedStream: compared with the queue, not stored, not sent
	Followed             // HeaderSchedule: the push does what it says; not stored, not sent
	Refused              // the push is refused; a header that is stored already is not sent
)

// HeaderFate returns what becomes of a header. The reply that carries an item is published with the
// bridge's permissions and the item's headers. So none of them may make a NATS server act: trace
// the reply to another subject or, if the reply subject belongs to a stream, delete or overwrite
// what is in the stream. All such headers begin with "Nats-", and later servers will have more. So
// of these names only those known to be harmless are kept, in upper or lower case.
func HeaderFate(name string, values []string) Fate {
	switch {
	case hasPrefixFold(name, "Nmqtt-"): // the server's notes on what an MQTT client published
		return Dropped
	case !IsNATS(name):
		return Kept
	case strings.EqualFold(name, HeaderTraceDest) && setByServer(values):
		return Dropped
	}
	for _, known := range natsHeaders {
		if strings.EqualFold(name, known.name) {
			return known.fate
		}
	}
	return Refused
}

// WhyRefused says why a push must not have a header that is Refused, as the end of a sentence.
func WhyRefused(name string) string {
	switch {
	case hasPrefixFold(name, "Nats-Expected-"):
		return "it is a condition that only a stream can check, and a push must not ignore it: leave it out, or push to a stream"
	case hasPrefixFold(name, "Nats-Batch-"):
		return "queues have no batches of JetStream: push many items with push.batch or enqueue.batch"
	case strings.EqualFold(name, "Nats-Rollup"):
		return "a push never removes other items: leave it out"
	case hasPrefixFold(name, HeaderSchedule+"-"):
		return "a delayed item comes back to its own queue, once: leave it out, Nats-Schedule alone delays it"
	default:
		return "NATS servers act on it, and would on the reply that returns the item: leave it out"
	}
}

// OfPushAlone reports whether the header is about the push of an item, and no longer about the
// item once it is in a dead-letter queue.
func OfPushAlone(name string) bool {
	return strings.EqualFold(name, HeaderMsgID) || strings.EqualFold(name, HeaderTTL)
}

// natsHeaders are the names that begin with "Nats-" and are not refused.
var natsHeaders = [...]struct {
	name string
	fate Fate
}{
	// Set by the pusher. A stream acts on them too, so a pop whose reply subject
	// belongs to a stream is stored there as the pusher asked.
	{HeaderMsgID, Kept},
	{HeaderTTL, Kept},
	{HeaderExpectedStream, Checked},
	{HeaderSchedule, Followed},
	// A stream's notes on a message that it republished or delivered.
	{"Nats-Stream", Kept},
	{"Nats-Subject", Kept},
	{"Nats-Sequence", Kept},
	{"Nats-Time-Stamp", Kept},
	{"Nats-Last-Sequence", Kept},
	{"Nats-Num-Pending", Kept},
	{"Nats-Msg-Size", Kept},
	// A server's notes on a request that came from another account, or that the server traces.
	{headerRequestInfo, Dropped},
	{headerTraceHop, Dropped},
}

// headerRequestInfo is where the server says who made a request to another account.
const headerRequestInfo = "Nats-Request-Info"

// setByServer reports whether a server set HeaderTraceDest: to TraceDisabled, or to the
// subject through which traces go to another account.
func setByServer(values []string) bool {
	for _, value := range values {
		if value != TraceDisabled && !strings.HasPrefix(value, "_R_.") {
			return false
		}
	}
	return true
}

// AddedByServer reports whether a NATS server may have added the header to a request on its way.
func AddedByServer(name string) bool {
	return hasPrefixFold(name, "Nmqtt-") || strings.EqualFold(name, headerRequestInfo) ||
		strings.EqualFold(name, headerTraceHop) || strings.EqualFold(name, HeaderTraceDest)
}

// HeaderPunctuation may be in the names of headers, besides letters and digits.
const HeaderPunctuation = "!#$%&'*+-.^_`|~"

// ValidHeaderName reports whether NATS's Go client can send a header of that name.
func ValidHeaderName(name string) bool {
	for i := range len(name) {
		c := name[i]
		alnum := 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
		if !alnum && strings.IndexByte(HeaderPunctuation, c) < 0 {
			return false
		}
	}
	return len(name) > 0
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
