package fdbpq

import (
	"fmt"
	"iter"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// popLimits is what limits the pops and leases of one queue, all together and group by group. Nothing
// is stored about groups that are at a limit: pops pass over their items, and the next transaction
// looks again.
type popLimits struct {
	*queueTxn
	set       *Settings
	groupRate settings.Rate
	queue     quota
	groups    map[codec.GroupHash]*quota // nil without limits of groups

	kept   int64     // places for leases that follow the acknowledgements that freed them
	passed bool      // items were passed over
	next   time.Time // when the first rate that is used up gives the next token
}

// quota is what is left of the limits of the queue, or of one group.
type quota struct {
	most    int64             // leased items; 0 is no limit
	counter kv.Future[[]byte] // of these, until it is read
	leased  int64             // what is to be added to the counter, then all
	locked  bool              // the transaction has leased an item of the group
	bucket  *state.Bucket     // nil without a rate
}

// count returns how many items are leased. The error is ErrCorrupt or one of the store.
func (u *quota) count() (int64, error) {
	if u.counter != nil {
		n, err := state.ReadCounter(u.counter)
		if err != nil {
			return 0, err
		}
		u.counter, u.leased = nil, u.leased+n
	}
	return u.leased, nil
}

// nextToken returns when the rate gives one, zero if that is now. The error is one of the store.
func (p *popLimits) nextToken(u *quota) (at time.Time, err error) {
	at, err = u.bucket.Next(p.asOf)
	p.next = codec.Earliest(p.next, at)
	return at, err
}

// setUp finds out what the limits are.
func (p *popLimits) setUp(set *Settings) {
	p.set = set
	if set.LimitsGroups() {
		p.groups = map[codec.GroupHash]*quota{}
		p.groupRate, _ = settings.ParseRate(set.RatePerGroup) // what only another version can read is no limit
	}
}

// beginLimits finds out what limits the pops and leases, and starts to read what that depends on.
func (q *queuePops) beginLimits() error {
	set, err := q.ledger.ReadableSettings()
	if err != nil {
		return err
	}

	p := &q.limits
	p.setUp(set)
	if rate, err := settings.ParseRate(set.Rate); err == nil && rate.Count > 0 { // else it is another version's
		p.queue.bucket = state.NewBucket(codec.NotIndexed, rate, q.snapshot.Get(q.l.BucketKey(codec.NotIndexed)))
	}
	if set.MaxLeased > 0 && q.has(func(op *Op) bool { return op.Kind == OpLease }) {
		p.queue.most, p.queue.leased = set.MaxLeased, q.ledger.Held(Leased)
		p.queue.counter = q.tx.Get(q.l.StateCounterKey(Leased))
		for _, i := range q.indexes {
			if p.hasPlace(i) {
				p.kept++
			}
		}
	}
	for end := range q.ends.Walks {
		p.begin(q.ends.Walks[end].Ahead())
	}
	return nil
}

// closed returns why nothing is served at all, nil if something may be: the queue is paused, or its
// rate is used up. The error may be one of the store.
func (p *popLimits) closed() error {
	if paused := codec.PausedAt(p.set, p.now); paused != nil {
		return paused
	}
	at, err := p.nextToken(&p.queue)
	if err == nil && !at.IsZero() {
		err = &RateError{Rate: p.set.Rate, Until: at}
	}
	return err
}

// hasPlace reports whether an operation is a lease for which one of the acknowledgements that it
// follows has freed a place. The place is kept for it, whichever leases come before it.
func (p *popLimits) hasPlace(i int) bool {
	return p.ops[i].Kind == OpLease && p.results[i].place
}

// releasePlaces gives the places that were kept for operation i, and those that follow it, to them.
func (p *popLimits) releasePlaces(i int) {
	for ; i < len(p.ops) && p.hasPlace(i); i++ {
		p.kept--
	}
}

// checkLease returns why no further item may be leased, nil if one may. The error is ErrCorrupt or
// one of the store.
func (p *popLimits) checkLease() (refused, err error) {
	n, err := p.queue.count()
	if err != nil || p.queue.most == 0 || n+p.kept < p.queue.most {
		return nil, err
	}
	refused = fmt.Errorf("%w: %d", ErrMaxLeased, p.queue.most)
	if p.due.Behind() { // leases that count may be over
		refused = notYet(refused)
	}
	return refused, nil
}

// knows reports whether what limits a group is known or being read, or nothing does.
func (p *popLimits) knows(hash codec.GroupHash) bool {
	return p.groups == nil || hash <= codec.NoGroup || p.groups[hash] != nil
}

// begin starts to read what limits the groups of some items, without conflict: see take.
func (p *popLimits) begin(ids iter.Seq[*ID]) {
	for id := range ids {
		p.beginGroup(codec.GroupIn(id))
	}
}

func (p *popLimits) beginGroup(hash codec.GroupHash) {
	if p.knows(hash) {
		return
	}
	u := &quota{most: p.set.MaxLeasedPerGroup}
	if u.most > 0 {
		u.counter, u.leased = p.snapshot.Get(p.l.GroupLeasedKey(hash)), p.ledger.UnwrittenLeases(hash)
	}
	if p.groupRate.Count > 0 {
		u.bucket = state.NewBucket(hash, p.groupRate, p.snapshot.Get(p.l.BucketKey(hash)))
	}
	p.groups[hash] = u
}

// know waits for up to limit counters of groups, and takes what limits these from them and from the
// rows of their rates. If not all of that was read, it reads what may be missing, but cut says that
// there may be more groups. The error is ErrCorrupt or one of the store.
func (p *popLimits) know(counters kv.Future[[]kv.KeyValue], limit int) (loads []state.GroupLoad, cut bool, err error) {
	rows := kv.Ready[[]kv.KeyValue](nil, nil)
	if p.groupRate.Count > 0 {
		rows = p.snapshot.GetRange(p.l.GroupBuckets(), kv.RangeOptions{Limit: state.MostGroupRows})
	}
	if loads, cut, err = state.GroupLoads(p.l, counters, limit); err != nil {
		return nil, cut, err
	}
	pairs, err := rows.Get()
	if err != nil {
		return nil, cut, err
	}
	buckets := make(map[codec.GroupHash][]byte, len(pairs))
	for _, pair := range pairs {
		if hash, err := p.l.ParseBucketKey(pair.Key); err == nil {
			buckets[hash] = pair.Value
		}
	}

	for i, load := range loads {
		row := buckets[load.Hash]
		switch {
		case p.knows(load.Hash):
		case cut && i == len(loads)-1, row == nil && len(pairs) == state.MostGroupRows:
			p.beginGroup(load.Hash)
		default:
			u := &quota{most: p.set.MaxLeasedPerGroup, leased: load.Leased}
			if p.groupRate.Count > 0 {
				u.bucket = state.NewBucket(load.Hash, p.groupRate, kv.Ready(row, nil))
			}
			p.groups[load.Hash] = u
		}
	}
	return loads, cut, nil
}

// may reports whether an item of a group may be served now. The error is ErrCorrupt or one of the
// store.
func (p *popLimits) may(hash codec.GroupHash) (bool, error) {
	if p.groups == nil || hash <= codec.NoGroup {
		return true, nil
	}
	p.beginGroup(hash)
	u := p.groups[hash]
	n, err := u.count()
	if err != nil {
		return false, err
	}
	at, err := p.nextToken(u)
	may := (u.most == 0 || n < u.most) && at.IsZero()
	p.passed = p.passed || !may
	return may, err
}

// take counts a delivery. The number of leased items of a group is read without conflict: only leases
// raise it, and these conflict with each other. Acknowledgements never do.
func (p *popLimits) take(hash codec.GroupHash, lease bool) {
	p.queue.take(p.asOf, lease)
	u := p.groups[hash]
	if u == nil {
		return
	}
	u.take(p.asOf, lease)
	if lease && u.most > 0 && !u.locked {
		u.locked = true
		p.ledger.ConflictLeasing(hash, true)
	}
}

func (u *quota) take(now time.Time, lease bool) {
	u.bucket.Take(now)
	if lease {
		u.leased++
	}
}

// write writes what the deliveries have left of the rates.
func (p *popLimits) write() {
	p.queue.bucket.Write(&p.ledger)
	for _, u := range p.groups {
		u.bucket.Write(&p.ledger)
	}
}

// none is the error of pops that find nothing that may be served, nil if they find nothing at all.
func (p *popLimits) none() error {
	if !p.passed {
		return nil
	}
	return &GroupLimitsError{MaxLeasedPerGroup: p.set.MaxLeasedPerGroup, RatePerGroup: p.set.RatePerGroup}
}
