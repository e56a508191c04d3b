package fdbpq

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// request is one pop, as its owner sees it.
type request struct {
	l                             *layout
	end                           End
	id                            [randomSize]byte
	answerKey, valueKey, claimKey []byte
	oldClaims                     []expiringKey // of earlier pops, removed on the way

	key     []byte  // its place in line, the same for life; nil until first registered
	claims  []claim // attempts to take an item, in order
	claimed *claim  // the one that was committed, or else the last one

	soonFirst  bool          // the line was empty, so it may be the first soon
	first      string        // the first in line when last seen
	firstSince time.Time     // since when it is
	patience   time.Duration // with a first in line that does not serve
}

// taking is an attempt to take an item.
type claim struct {
	*stored
	marker expiringKey // that says that it was committed
}

// mark is a mark, and when it falls due.
type expiringKey struct {
	key      []byte
	deadline time.Time
}

func newRequest(l *layout, end End, now time.Time) *request {
	id := newID(0, 0, now, uniqueBytes(1), false).Random
	return &request{
		l:         l,
		end:       end,
		id:        id,
		answerKey: l.partKey(partAnswer, id),
		valueKey:  l.partKey(partValue, id),
		claimKey:  l.partKey(partClaim, id),
		patience:  minPatience + rand.N(maxPatience-minPatience),
	}
}

// attempted reports whether anything may have been written for the request.
func (r *request) attempted() bool { return r.key != nil || len(r.claims) > 0 }

// fence makes attempts of the same request conflict with each other. The read
// must come first: FoundationDB leaves out what the transaction has written.
func (r *request) fence(tx kv.Transaction) {
	tx.AddReadConflict(kv.SingleKey(r.answerKey))
	tx.AddWriteConflict(kv.SingleKey(r.answerKey))
}

// take writes that the item was taken by this request.
func (r *request) claim(tx kv.Transaction, item *stored, now time.Time) {
	r.fence(tx)
	t := claim{stored: item, marker: expiringKey{key: r.claimKey, deadline: now.Add(claimLife)}}
	r.l.setUntil(tx, t.marker.deadline, t.marker.key, encodeClaim(t.marker.deadline, len(r.claims)))
	for _, m := range r.oldClaims {
		r.l.clearUntil(tx, m.deadline, m.key)
	}
	r.claims = append(r.claims, t)
	r.claimed = &t
}

// marked returns the attempt that has taken an item, nil if none has.
func (r *request) committedClaim(read kv.Future[[]byte]) (*claim, error) {
	value, err := read.Get()
	if err != nil || value == nil {
		return nil, err
	}
	_, n, err := parseClaim(value)
	if err == nil && (n < 0 || n >= int64(len(r.claims))) {
		err = fmt.Errorf("%w: mark of attempt %d: there were %d", ErrCorrupt, n, len(r.claims))
	}
	if err != nil {
		return nil, err
	}
	return &r.claims[n], nil
}

// see notes who is first in line.
func (r *request) see(line []kv.KeyValue, now time.Time) {
	r.soonFirst = false
	first := ""
	if len(line) > 0 {
		first = string(line[0].Key)
	}
	if first != r.first {
		r.first, r.firstSince = first, now
	}
}

// shouldServe reports whether it is up to this request to serve the line.
func (r *request) shouldServe(now time.Time) bool {
	if r.key == nil || r.first == "" {
		return false
	}
	return r.first == string(r.key) || now.Sub(r.firstSince) > r.patience
}
