package staged

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// These values come from measurements with BenchmarkContention.
const (
	// requestLife is how long a request waits to be served. After that its owner, if it is still
	// there, registers it again.
	requestLife = 10 * time.Second
	// answerLife is how long an answer waits to be collected.
	answerLife = 30 * time.Second
	// claimLife is how long a pop has to find out that it took an item, for example because the
	// store cannot be reached.
	claimLife = time.Hour
	// minPatience and maxPatience bound how long the first in line may stay there before a request
	// serves the line that would leave it to a leader or to the first, in addition to two expected
	// waits. Each request draws its own, so that not all lose patience at once.
	minPatience = 100 * time.Millisecond
	maxPatience = time.Second
	// serveLimit is the most requests, and serveBytes about the most bytes of values, that one
	// transaction serves.
	serveLimit = 256
	serveBytes = 1_000_000
	// minPoll and maxPoll bound the time between two checks for an answer.
	minPoll = time.Millisecond
	maxPoll = 200 * time.Millisecond
	// withdrawTime is how long a pop may take to withdraw after its context has ended.
	withdrawTime = 2 * time.Second
)

// request is one pop, as the Popper that makes it sees it.
type request struct {
	l                             *codec.Layout
	end                           fdbpq.End
	id                            [codec.RandomSize]byte
	answerKey, valueKey, claimKey []byte
	oldClaims                     []expiringKey // of earlier pops, to be removed

	key     []byte  // its place in line, which never changes; nil before it has one
	claims  []claim // attempts to take an item, in order
	claimed *claim  // the one that committed, or the last one

	slowest   time.Duration // what its slowest transaction took
	collected bool          // another pop has answered it

	soonFirst  bool          // the line was empty, so it is probably first
	first      string        // key of the first in line, when last seen; "" if unknown
	firstSince time.Time     // when that was first seen
	lastClaim  string        // key of the newest claim, when last seen
	led        bool          // another Popper took an item between the last two looks
	patience   time.Duration // with a first in line that does not serve the others
}

// claim is an attempt to take an item.
type claim struct {
	*fdbpq.Item
	marker expiringKey // written if it commits
}

// expiringKey is a key that falls due.
type expiringKey struct {
	key      []byte
	deadline time.Time
}

func newRequest(l *codec.Layout, end fdbpq.End, now time.Time) *request {
	id := codec.NewID(0, 0, now, codec.UniqueBytes(1), false).Random
	return &request{
		l:         l,
		end:       end,
		id:        id,
		answerKey: l.PartKey(codec.PartAnswer, id),
		valueKey:  l.PartKey(codec.PartValue, id),
		claimKey:  l.PartKey(codec.PartClaim, id),
		patience:  minPatience + rand.N(maxPatience-minPatience),
	}
}

// fence makes all attempts of a request conflict with each other. The read conflict must come
// first: FoundationDB ignores it for keys that the transaction has written.
func (r *request) fence(tx kv.Transaction) {
	tx.AddReadConflict(kv.SingleKey(r.answerKey))
	tx.AddWriteConflict(kv.SingleKey(r.answerKey))
}

// claim records in tx that this request takes the item.
func (r *request) claim(tx kv.Transaction, item *fdbpq.Item, now time.Time) {
	r.fence(tx)
	c := claim{item, expiringKey{r.claimKey, now.Add(claimLife)}}
	state.SetUntil(r.l, tx, c.marker.deadline, c.marker.key, codec.EncodeClaim(c.marker.deadline, len(r.claims)))
	for _, old := range r.oldClaims {
		state.ClearUntil(r.l, tx, old.deadline, old.key)
	}
	r.claims = append(r.claims, c)
	r.claimed = &c
}

// take takes a detached item, which has been read in full, and whose history is being read.
func (r *request) take(g *state.Ledger, item *state.Stored, history kv.Future[[]byte]) (*fdbpq.Result, error) {
	past, err := history.Get()
	if err != nil {
		return nil, err
	}
	g.DeleteRest(item)
	g.ClearHistory(&item.Item.ID, past)
	taken := item.Taken(r.l, past)
	r.claim(g.Tx, taken.Item, g.Now)
	return &fdbpq.Result{Item: *taken.Item}, nil
}

// committedClaim returns the claim that has committed, nil if none has.
func (r *request) committedClaim(read kv.Future[[]byte]) (*claim, error) {
	value, err := read.Get()
	if err != nil || value == nil {
		return nil, err
	}
	_, n, err := codec.ParseClaim(value)
	if err == nil && (n < 0 || n >= int64(len(r.claims))) {
		err = fmt.Errorf("%w: claim %d of a request that made %d", fdbpq.ErrCorrupt, n, len(r.claims))
	}
	if err != nil {
		return nil, err
	}
	return &r.claims[n], nil
}

// beginLook starts to read the first request in line, or the last if r has no place yet, and the
// newest claim. It returns how to wait for them.
func (r *request) beginLook(tx kv.Transaction) (wait func() (line, claims []kv.KeyValue, err error)) {
	inLine := tx.Snapshot().GetRange(r.l.RequestRange(), kv.RangeOptions{Limit: 1, Reverse: r.key == nil})
	claimed := tx.Snapshot().GetRange(codec.Within(r.l.PartPrefix(codec.PartClaim)), kv.RangeOptions{Limit: 1, Reverse: true})
	return func() (line, claims []kv.KeyValue, err error) {
		if line, err = inLine.Get(); err == nil {
			claims, err = claimed.Get()
		}
		return line, claims, err
	}
}

// register puts the request in line: at its old place, because an earlier attempt may still commit,
// or after the last request if it has none. line and claims are what beginLook has read.
func (r *request) register(tx kv.Transaction, line, claims []kv.KeyValue, now time.Time) error {
	if r.key == nil {
		count := int64(0)
		if len(line) > 0 {
			last, err := r.l.ParseRequest(line[0])
			if err != nil {
				return err
			}
			count = codec.Following(last.Count)
		}
		r.key = r.l.RequestKey(count, r.id)
	}

	r.fence(tx)
	tx.Set(r.key, codec.EncodeRequest(r.end, now.Add(requestLife)))
	r.first, r.soonFirst = "", len(line) == 0
	r.seeClaim(claims)
	return nil
}

// see records who is first in line, and the newest claim.
func (r *request) see(line, claims []kv.KeyValue, now time.Time) {
	r.soonFirst = false
	if first := firstKey(line); first != r.first {
		r.first, r.firstSince = first, now
	}
	r.seeClaim(claims)
}

func (r *request) seeClaim(claims []kv.KeyValue) {
	last := firstKey(claims)
	r.led, r.lastClaim = last != r.lastClaim, last
}

func firstKey(pairs []kv.KeyValue) string {
	if len(pairs) == 0 {
		return ""
	}
	return string(pairs[0].Key)
}

// shouldServe reports whether this request should serve the line. If a leader is taking items, even
// the first leaves that to the leader, which would conflict with it.
func (r *request) shouldServe(now time.Time) bool {
	if r.key == nil || r.first == "" {
		return false
	}
	return r.first == string(r.key) && !r.led || now.Sub(r.firstSince) > r.patience
}

// pause returns how long to wait before the next check for an answer, after pauses of the given
// length altogether: a share of that, so that a long wait takes few checks, but time enough for a
// leader to take an item.
func (r *request) pause(waited, expected time.Duration) time.Duration {
	pause := waited / 4
	if waited == 0 && !r.soonFirst {
		pause = expected * 3 / 4
	}
	return min(max(pause, minPoll, r.slowest), maxPoll)
}
