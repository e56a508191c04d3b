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

// Deadlines and limits. They come from measurements with BenchmarkContention.
const (
	// requestLife is how long a request waits to be served. Then its owner, if it is still there,
	// registers it again.
	requestLife = 10 * time.Second
	// answerLife is how long an answer waits to be collected.
	answerLife = 30 * time.Second
	// claimLife is how long a pop has to find out that it took an item, for example while the store
	// cannot be reached.
	claimLife = time.Hour
	// minPatience and maxPatience bound how long a request waits for a leader, or for the first in
	// line, to serve the line, in addition to two expected waits. Then it serves the line itself.
	// Each request draws its own patience, so that not all lose it at once.
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
	oldClaims                     []expiringKey // of earlier pops; this one removes them

	key     []byte  // its place in line, which never changes; nil before it has one
	claims  []claim // attempts to take an item, in order
	claimed *claim  // the attempt that committed, or the last one

	slowest   time.Duration // what its slowest transaction took
	collected bool          // another pop has answered it

	soonFirst  bool          // the line was empty when it registered, so it is probably the first
	first      string        // key of the first in line at the last look; "" if unknown
	firstSince time.Time     // when that key was first seen
	lastClaim  string        // key of the newest claim at the last look
	led        bool          // another Popper took an item between the last two looks
	patience   time.Duration // see minPatience
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
	id := codec.NewID(0, 0, now, codec.UniqueBytes(1), 0).Random
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
	deadline := now.Add(claimLife)
	c := claim{item, expiringKey{r.claimKey, deadline}}
	state.SetUntil(r.l, tx, deadline, r.claimKey, codec.EncodeClaim(deadline, len(r.claims)))
	for _, old := range r.oldClaims {
		state.ClearUntil(r.l, tx, old.deadline, old.key)
	}
	r.claims = append(r.claims, c)
	r.claimed = &c
}

// take takes a detached item that has been read in full. history is being read.
func (r *request) take(
	g *state.Ledger, item *state.ItemRead, history kv.Future[[]byte],
) (*fdbpq.Result, error) {
	past, err := history.Get()
	if err != nil {
		return nil, err
	}
	g.DeleteRest(item)
	g.Forget(&item.Item.ID, past)
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
		err = fmt.Errorf("%w: claim %d of a request that made %d",
			fdbpq.ErrCorrupt, n, len(r.claims))
	}

	if err != nil {
		return nil, err
	}
	return &r.claims[n], nil
}

// beginLook starts to read the first request in line, or the last one if r has no place yet, and
// the newest claim. The function that it returns waits for their pairs, none or one of each.
func (r *request) beginLook(tx kv.Transaction) func() (line, claims []kv.KeyValue, err error) {
	snapshot, claimed := tx.Snapshot(), codec.Within(r.l.PartPrefix(codec.PartClaim))
	one := kv.RangeOptions{Limit: 1, Reverse: r.key == nil}
	inLine := snapshot.GetRange(r.l.RequestRange(), one)
	newest := snapshot.GetRange(claimed, kv.RangeOptions{Limit: 1, Reverse: true})
	return func() (line, claims []kv.KeyValue, err error) {
		if line, err = inLine.Get(); err == nil {
			claims, err = newest.Get()
		}
		return line, claims, err
	}
}

// register puts the request in line: after the last request or, if it has a place, there again,
// because an earlier attempt may still commit. line and claims are what beginLook has read.
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

// shouldServe reports whether this request should serve the line. While a leader is taking items,
// even the first request leaves that to the leader, with which it would conflict.
func (r *request) shouldServe(now time.Time) bool {
	if r.key == nil || r.first == "" {
		return false
	}
	return r.first == string(r.key) && !r.led || now.Sub(r.firstSince) > r.patience
}

// pause returns how long to wait before the next check for an answer. waited is the length of all
// pauses so far: the pause is a share of it, so that a long wait takes few checks, but long enough
// for a leader to take an item.
func (r *request) pause(waited, expected time.Duration) time.Duration {
	pause := waited / 4
	if waited == 0 && !r.soonFirst {
		pause = expected * 3 / 4
	}
	return min(max(pause, minPoll, r.slowest), maxPoll)
}
