package subjects

import (
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/subjects/trail"
)

// MaxHeaders is how many header lines a request, or an item in a batch of pushes, may have. Reading
// and storing a header takes much longer than a byte of a value.
const MaxHeaders = 1000

// MaxBatchHeaders is how many header lines the items of a batch of pushes may have together.
const MaxBatchHeaders = 50_000

// Headers of requests. NATS compares header names byte by byte.
const (
	// HeaderPriority is the priority of a push, a decimal int64, and of the item in a reply.
	HeaderPriority = "Pq-Priority"
	// HeaderDelay holds a pushed item back: see [ParseDelay].
	HeaderDelay = "Pq-Delay"
	// HeaderUnique is a key that no other item in the queue has. A push with the key of an item
	// that is still there changes nothing.
	HeaderUnique = "Pq-Unique"
	// HeaderGroup is the group of an item. Replies to pop, peek and get have it too.
	HeaderGroup = "Pq-Group"
	// HeaderWeight of a push is how many items of its group have a turn: see [GroupOfPush].
	HeaderWeight = "Pq-Weight"
	// HeaderKeep is for how long a job is kept once it is done: see [ParseKeep]. Replies to pop,
	// peek and get have it too.
	HeaderKeep = "Pq-Keep"

	// HeaderJoin makes an item a joiner: it is delayed until all its members have ended, but at
	// most for that time: see [ParseJoin]. HeaderJoiner makes it a member: see [ParseJoiner].
	// Replies to pop, peek and get have it too.
	HeaderJoin   = "Pq-Join"
	HeaderJoiner = "Pq-Joiner"

	// HeaderAck is an acknowledgement, as [ParseAck] reads it. With it, the payload is the result
	// of the job, of the type HeaderContentType, or with HeaderFrames the results of several jobs.
	HeaderAck         = "Pq-Ack"
	HeaderContentType = "Content-Type"

	// HeaderClient is what the client says of itself, such as "ann@laptop pid 7 pq". The service
	// logs up to 256 bytes of it with requests that change many items, settings or a schedule.
	HeaderClient = "User-Agent"

	// HeaderMsgID is the id of a message that should be stored only once within a time, as
	// JetStream's publishers send it.
	HeaderMsgID = "Nats-Msg-Id"
	// HeaderExpectedStream is the stream that JetStream's publishers expect to store a message: for
	// a push, the name of the queue.
	HeaderExpectedStream = "Nats-Expected-Stream"
	// HeaderSchedule is when a message should be delivered: see [ParseSchedule].
	HeaderSchedule = "Nats-Schedule"
	// HeaderTTL is when a message expires: see [ParseTTL].
	HeaderTTL = "Nats-TTL"
)

// Headers of replies. Times are in TimeLayout.
const (
	// HeaderID, HeaderPushedAt and HeaderState are the id of an item's job, the time of its push
	// and its [State]. Replies to pop, peek and get have the first two, and those to get the state.
	HeaderID       = "Pq-Id"
	HeaderPushedAt = "Pq-Pushed-At"
	HeaderState    = "Pq-State"
	// HeaderPlace is the place of the item where that is not the id of its job. HeaderQueue is the
	// dead-letter queue in which a get has found the item; other replies do not have it. In a frame
	// of an acknowledgement it is the queue to push to: up to MaxSuccessors have it.
	HeaderPlace = "Pq-Place"
	HeaderQueue = "Pq-Queue"
	// HeaderDeliveries is how many times a leased item was delivered, this time included, and
	// HeaderLeaseUntil when its lease ends.
	HeaderDeliveries = "Pq-Deliveries"
	HeaderLeaseUntil = "Pq-Lease-Until"
	// HeaderAckWait is how long the lease is, a duration, if the request did not say, and
	// HeaderMaxDeliver how many deliveries the settings of the queue allow, if they limit them.
	HeaderAckWait    = "Pq-Ack-Wait"
	HeaderMaxDeliver = "Pq-Max-Deliver"

	// HeaderDeadQueue to HeaderDeadError describe a dead letter: the queue it was in, why and when
	// it was moved, how many deliveries it had, and the reason of the last negative acknowledgement
	// that gave one.
	HeaderDeadQueue      = "Pq-Dead-Queue"
	HeaderDeadReason     = "Pq-Dead-Reason"
	HeaderDeadAt         = "Pq-Dead-At"
	HeaderDeadDeliveries = "Pq-Dead-Deliveries"
	HeaderDeadError      = "Pq-Dead-Error"

	// HeaderSource says where an item was drawn from: the name of the stream, a space, and the
	// sequence of the message there.
	HeaderSource = "Pq-Source"
	// HeaderScheduleID is the id of the schedule that pushed the item, and HeaderScheduledAt the
	// time the item is for, in RFC 3339.
	HeaderScheduleID  = "Pq-Schedule"
	HeaderScheduledAt = "Pq-Scheduled-At"

	// HeaderJoined says of a joiner that has waited what became of its members:
	// "done=2 dead=1 gone=0 open=0".
	HeaderJoined = "Pq-Joined"

	// HeaderParent is the queue and the id of the job whose acknowledgement has pushed the item, if
	// its queue has the setting trail: see [trail.ParseJob].
	HeaderParent = trail.HeaderParent
	// HeaderTrail is the attempts of a job that have ended, as [trail.Parse] reads them, and
	// HeaderNext what a job that is done has pushed: see [trail.ParseSuccessors]. Replies to get
	// have them.
	HeaderTrail = trail.Header
	HeaderNext  = trail.HeaderNext
	// HeaderTrailCut, in the reply to a get, says with "true" that both left no room.
	HeaderTrailCut = "Pq-Trail-Cut"

	// HeaderLost says which leases are lost, in the reply to an acknowledgement of several that
	// failed with CodeConflict: see [ParseLost].
	HeaderLost = "Pq-Lost"
	// HeaderDone says which of these leases have acknowledged their jobs before, and HeaderNotKept,
	// in the reply to an acknowledgement that succeeded, whose results are not kept, because their
	// jobs are not: see [ParseNumbers].
	HeaderDone    = "Pq-Done"
	HeaderNotKept = "Pq-Not-Kept"
	// HeaderBatchCount marks the end of the reply to a pop of several items: how many were sent.
	HeaderBatchCount = "Pq-Batch-Count"
	// HeaderFrames marks a message that carries items, or the results of jobs, in frames: how many.
	// See [ParseFrames]. A client that asks for frames gets no other header beyond ASCII.
	HeaderFrames = "Pq-Frames"
	// HeaderToken is the token of the lease of an item, or a result, in a frame, or of the parent
	// of what an acknowledgement of several leases pushes. The subject of its acknowledgements ends
	// with it.
	HeaderToken = "Pq-Token"
	// HeaderHeartbeat marks a message that is neither an item nor the end of a reply. It is how
	// many items the pop still waits for.
	HeaderHeartbeat = "Pq-Heartbeat"

	// HeaderError says why a request failed and what would be right, and HeaderErrorCode is its
	// [Code]. The names come from NATS's service protocol.
	HeaderError     = "Nats-Service-Error"
	HeaderErrorCode = "Nats-Service-Error-Code"
	// HeaderReason is the [Reason] of a failed request.
	HeaderReason = "Pq-Reason"
	// HeaderOutcome distinguishes two kinds of 503: with the value [OutcomeUnknown] the request may
	// have been carried out; without it, the request did nothing.
	HeaderOutcome = "Pq-Outcome"
)

// MaxSuccessors is the most items that an acknowledgement can push.
const MaxSuccessors = 256

// OutcomeUnknown is the only value of [HeaderOutcome].
const OutcomeUnknown = "unknown"

// Reserved begins the names of headers that only the protocol may define.
const Reserved = "Pq-"

// IsStored reports whether the protocol stores the header with an item and returns it.
func IsStored(name string) bool {
	return name == HeaderGroup || name == HeaderJoined || isOrigin(name)
}

// OfItem reports whether a header of a reply is the item's own: one of the client's, or of the
// schedule, source or job that the item is from. All others are about its place in the queue, or
// the reply; see [ItemHeaders].
func OfItem(name string) bool { return !strings.HasPrefix(name, Reserved) || isOrigin(name) }

// isOrigin reports whether the header says which schedule, source or job an item is from.
func isOrigin(name string) bool {
	return name == HeaderScheduleID || name == HeaderScheduledAt || name == HeaderSource ||
		name == HeaderParent
}

// IsReserved reports whether the protocol defines the header, whatever its case.
func IsReserved(name string) bool { return hasPrefixFold(name, Reserved) }

// IsNATS reports whether NATS defines the header, whatever its case.
func IsNATS(name string) bool { return hasPrefixFold(name, natsPrefix) }

const natsPrefix = "Nats-"

// RequestHeaderKnown reports whether a request may have a header of that name. A request that
// relies on a header that this version does not support must fail, not half work. So of the names
// that begin with "Pq-", whatever their case, only [PushHeaders] and [AckHeaders] are known, and
// only as they are spelled there. All other names belong to the client, but see [HeaderFate].
func RequestHeaderKnown(name string) bool {
	return !IsReserved(name) || slices.Contains(PushHeaders[:], name) ||
		slices.Contains(AckHeaders[:], name)
}

// PushHeaders are the headers of a push that begin with [Reserved]. The first is for priority
// queues only. What an acknowledgement pushes has only the first NextHeaders of them.
var PushHeaders = [...]string{
	HeaderPriority, HeaderDelay, HeaderGroup, HeaderKeep, HeaderJoin, HeaderJoiner, HeaderUnique,
	HeaderWeight,
}

// NextHeaders is how many of the PushHeaders an acknowledgement can push.
const NextHeaders = 6

// AckHeaders are the headers of an acknowledgement that begin with [Reserved].
var AckHeaders = [...]string{HeaderAck, HeaderFrames}

// HeaderStatus is where NATS clients put the status of a message from the server itself.
const HeaderStatus = "Status"

// IsStatus reports whether NATS clients take a message for one from the server, such as "no
// responders" or "no messages". They hide it, or stop, whatever the status is.
func IsStatus(headers map[string][]string, value []byte) bool {
	return len(value) == 0 && len(headers[HeaderStatus]) > 0
}

// WhyNoStatus says why an item must not look like a status, as the end of a sentence.
const WhyNoStatus = "NATS clients take it for a message of the server, such as " +
	"\"no responders\", and hide it: leave the header out, or give the item a value"

// Headers of NATS's message tracing.
const (
	// HeaderTraceParent is the header of W3C trace contexts. If the account has a destination for
	// traces, a NATS server reports each message with this header there. It ignores the header's
	// case.
	HeaderTraceParent = "traceparent"
	// HeaderTraceDest asks a NATS server to report what becomes of the message, to the subject in
	// its value.
	HeaderTraceDest = "Nats-Trace-Dest"
	// TraceDisabled as the value of HeaderTraceDest makes a server report nothing, whatever other
	// headers the message has. Servers set it on messages that they do not sample.
	TraceDisabled = "trace disabled"

	headerTraceHop = "Nats-Trace-Hop"
)

// Fate is what becomes of a header that is pushed with an item.
type Fate uint8

// The fates.
const (
	Kept     Fate = iota // stored, and sent with the item
	Dropped              // a note that a NATS server made on the request: not stored, not sent
	Checked              // HeaderExpectedStream: compared with the queue; not stored, not sent
	Followed             // HeaderSchedule: the push does what it says; not stored, not sent
	Refused              // the push fails; a header that is already stored is not sent
)

// HeaderFate returns what becomes of a header of a pushed item. The case of the name does not
// matter.
//
// The reply with the item is published with the bridge's permissions and the item's headers. So
// none of them may make a NATS server act: trace the reply to another subject or, if the reply
// subject belongs to a stream, delete or overwrite messages there. All such headers begin with
// "Nats-", and later servers will have more of them. So of these names only those known to be
// harmless are kept.
func HeaderFate(name string, values []string) Fate {
	switch {
	case hasPrefixFold(name, "Nmqtt-"): // the server's notes on what an MQTT client published
		return Dropped
	case !hasPrefixFold(name, natsPrefix):
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

// WhyRefused says why a push must not have a header whose fate is Refused, as the end of a
// sentence.
func WhyRefused(name string) string {
	switch {
	case hasPrefixFold(name, "Nats-Expected-"):
		return "it is a condition that only a stream can check, and a push must not ignore it: " +
			"leave it out, or push to a stream"
	case hasPrefixFold(name, "Nats-Batch-"):
		return "queues have no batches of JetStream: push many items with push.batch"
	case strings.EqualFold(name, "Nats-Rollup"):
		return "a push never removes other items: leave it out"
	case hasPrefixFold(name, HeaderSchedule+"-"):
		return "a delayed item comes back to its own queue, once: " +
			"leave it out, Nats-Schedule alone delays it"
	}
	return "NATS servers act on it, and would act on it again in the reply with the item: " +
		"leave it out"
}

// OfPushAlone reports whether the header is about the push of an item. An item loses it when it
// becomes a dead letter.
func OfPushAlone(name string) bool {
	return strings.EqualFold(name, HeaderMsgID) || strings.EqualFold(name, HeaderTTL)
}

// natsHeaders are the names that begin with "Nats-" and are not refused.
var natsHeaders = [...]struct {
	name string
	fate Fate
}{
	// The pusher sets these. Streams act on them too, so if the reply subject of a pop belongs to a
	// stream, the item is stored there as the pusher asked.
	{HeaderMsgID, Kept},
	{HeaderTTL, Kept},
	{HeaderExpectedStream, Checked},
	{HeaderSchedule, Followed},
	// Streams note these on messages that they republish or deliver.
	{"Nats-Stream", Kept},
	{"Nats-Subject", Kept},
	{"Nats-Sequence", Kept},
	{"Nats-Time-Stamp", Kept},
	{"Nats-Last-Sequence", Kept},
	{"Nats-Num-Pending", Kept},
	{"Nats-Msg-Size", Kept},
	// Servers note these on requests that came from another account, or that they trace.
	{HeaderRequestInfo, Dropped},
	{headerTraceHop, Dropped},
}

// HeaderRequestInfo is where a server notes who made a request to another account.
const HeaderRequestInfo = "Nats-Request-Info"

// setByServer reports whether a server set HeaderTraceDest: to TraceDisabled, or to the subject
// through which traces go to another account.
func setByServer(values []string) bool {
	return !slices.ContainsFunc(values, func(value string) bool {
		return value != TraceDisabled && !strings.HasPrefix(value, "_R_.")
	})
}

// AddedByServer reports whether a NATS server may have added the header to a request on its way.
func AddedByServer(name string) bool {
	is := func(other string) bool { return strings.EqualFold(name, other) }
	return hasPrefixFold(name, "Nmqtt-") || is(HeaderRequestInfo) || is(headerTraceHop) ||
		is(HeaderTraceDest)
}

// HeaderPunctuation lists what the names of headers may have besides letters and digits.
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
