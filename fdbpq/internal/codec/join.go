package codec

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// A join is a job that runs when others have ended. The job that waits is the joiner: an item with
// Message.Join, delayed for as long as it waits at most. The others are its members: items with
// Message.Joiner, in its queue or in others. While the joiner waits, its queue has
//
//	("J", priority, count, random)    = ""     from the place of the joiner
//	("J", priority, count, random, n) = int64  counters of its members: see JoinCounts
//
// and the queue of a member
//
//	("J", "m", queue, priority, count, random) = int64  counter: members of that joiner here
//
// The last one lets a purge end members without reading them. It may outlive the joiner, until the
// members have ended.
//
// # Why a join fires exactly once, and none is missed
//
// A push of a member reads the key of the joiner with conflict, and the joiner's transaction
// removes that key. So a member is counted before the joiner fires, or is refused; only where the
// joiner's time is over it may be pushed and not be in the header. Apart from that members only add
// to counters, and conflict with nobody.
//
// The transaction that ends a member adds to the counters too, and leaves a mark: an entry of the
// time index that names the joiner as if it fell due earlier than it does. Whoever handles due
// entries finds it, and reads the counter of open members. At 0 the joiner fires: the counter is
// then read with conflict. Otherwise the mark goes, if it still has the value that was read, which
// is random. So a member that ends meanwhile either was counted, or has left another mark.
// Two transactions that end the last two members at the same time may each see the other's as
// open. Their mark is therefore for the next full second, when both have ended.
const KindJoin = "J"

// joinMembers is the second element of the counter of a joiner's members in their queue.
const joinMembers = "m"

// JoinCounts is the members of a joiner, by what became of them. They are numbered as their
// counters are.
type JoinCounts [4]int64

// The numbers of JoinCounts. The members that are done are the others of all.
const (
	JoinOpen = iota // in a queue
	JoinAll         // ever
	JoinDead        // became dead letters
	JoinGone        // left their queues in another way: popped, removed, expired
)

// MemberEnd is how a member ended, as the change of its join's counts.
type MemberEnd JoinCounts

// How an item leaves its place.
var (
	MemberDone  = MemberEnd{JoinOpen: -1}
	MemberDead  = MemberEnd{JoinOpen: -1, JoinDead: 1}
	MemberGone  = MemberEnd{JoinOpen: -1, JoinGone: 1}
	MemberMoved = MemberEnd{JoinOpen: -1, JoinAll: -1} // and is added at another one
	MemberAdded = MemberEnd{JoinOpen: 1, JoinAll: 1}
)

// String returns the counts as the header of a joiner has them.
func (c JoinCounts) String() string {
	done := c[JoinAll] - c[JoinOpen] - c[JoinDead] - c[JoinGone]
	return fmt.Sprintf("done=%d dead=%d gone=%d open=%d", done, c[JoinDead], c[JoinGone],
		c[JoinOpen])
}

// MaxJoiner is the most bytes of a joiner, as Message.Size counts them.
const MaxJoiner = 64 << 10

// HeaderJoined is the header of a joiner that has fired: the JoinCounts of that time.
const HeaderJoined = "Pq-Joined"

// Joiner names a joiner: its queue, of the same kind as the member's and in the same Keyspace, and
// its job.
type Joiner struct {
	Queue string
	ID    ID
}

// joinerSize is about how many bytes a Joiner takes in the ("m") keys, without the queue.
const joinerSize = 60

// append appends a Joiner as the ("m") keys have it.
func (j *Joiner) append(b []byte) []byte {
	b = tuple.AppendBytes(tuple.AppendStart(b), []byte(j.Queue))
	return tuple.AppendEnd(tuple.AppendBytes(b, EncodeID(&j.ID)))
}

// parseJoiner reads what append wrote.
func parseJoiner(from *decoder) *Joiner {
	from.start()
	j := &Joiner{Queue: string(from.bytes()), ID: from.encodedID()}
	from.close()
	return j
}

// Joined is the layout of the joiner's queue.
func (l *Layout) Joined(j *Joiner) *Layout { return l.named(j.Queue) }

// JoinKey is the key that is there while a joiner waits.
func (l *Layout) JoinKey(joiner *ID) []byte { return l.IDKey(KindJoin, joiner) }

// JoinCounterKey is one of the counters of a joiner that waits.
func (l *Layout) JoinCounterKey(joiner *ID, n int) []byte {
	return tuple.AppendInt(l.JoinKey(joiner), int64(n))
}

// JoinRange is the range of the JoinKey and the counters of a joiner.
func (l *Layout) JoinRange(joiner *ID) kv.Range {
	key := l.JoinKey(joiner)
	return kv.Range{Begin: key, End: Within(key[:len(key):len(key)]).End}
}

// MembersRange is the range of the counters of members in their queue.
func (l *Layout) MembersRange() kv.Range {
	return Within(tuple.AppendString(l.Key(KindJoin, 0), joinMembers))
}

// MembersKey is the counter of a joiner's members in their queue.
func (l *Layout) MembersKey(j *Joiner) []byte {
	key := tuple.AppendString(l.Key(KindJoin, len(j.Queue)+joinerSize), joinMembers)
	return appendPlace(l.appendPriority(tuple.AppendString(key, j.Queue), j.ID.Priority), &j.ID)
}

// ParseMembersKey reads what MembersKey has made.
func (l *Layout) ParseMembersKey(key []byte) (j Joiner, err error) {
	d := decoder{rest: l.Place(key)}
	d.text()
	j.Queue, j.ID = d.text(), d.idIn(l)
	return finish(&d, j, "members of a join: key", key)
}

// JoinSize is about how many bytes a message takes in the transaction of a push because of a join,
// with conflict ranges. All members of a joiner together take it once.
func (l *Layout) JoinSize(m *Message) (size int) {
	const keys = 5
	if m.Join > 0 {
		size += keys * 3 * (len(l.Prefix) + joinerSize)
	}
	if m.Joiner != nil {
		size += keys * 3 * (len(l.Prefix) + joinerSize + 2*len(m.Joiner.Queue))
	}
	return size
}
