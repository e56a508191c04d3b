package fdbpq

import (
	"cmp"
	"iter"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// groupLimits is what limits the pops and leases of one queue group by group. Nothing is stored about
// groups that are at a limit: pops pass over their items, and the next transaction looks again.
type groupLimits struct {
	*queueTxn
	maxLeased int64
	rate      settings.Rate
	refused   *codec.GroupLimitsError // nil if there are no limits

	groups map[codec.GroupHash]*groupState
	passed bool      // items were passed over
	next   time.Time // when the first group gets a token that was passed over for lack of one
}

// groupState is what is known of a group.
type groupState struct {
	read   kv.Future[[]byte] // counter of leased items; nil once known
	leased int64             // what is to be added to that, then all
	bucket *state.Bucket     // nil without a rate
	leases bool              // the transaction has leased an item of the group
}

// setUp finds out what the limits are.
func (p *groupLimits) setUp(s *Settings) {
	if !s.LimitsGroups() {
		return
	}
	p.maxLeased, p.groups = s.MaxLeasedPerGroup, map[codec.GroupHash]*groupState{}
	p.refused = &codec.GroupLimitsError{MaxLeasedPerGroup: s.MaxLeasedPerGroup, RatePerGroup: s.RatePerGroup}
	p.rate, _ = settings.ParseRate(s.RatePerGroup) // what only another version can read is no limit
}

// limited reports whether there are limits for the group.
func (p *groupLimits) limited(hash codec.GroupHash) bool {
	return p.refused != nil && hash > codec.NoGroup
}

// knows reports whether what limits a group is known or being read.
func (p *groupLimits) knows(hash codec.GroupHash) bool {
	return !p.limited(hash) || p.groups[hash] != nil
}

// begin starts to read what limits the groups of some items, without conflict: see take.
func (p *groupLimits) begin(ids iter.Seq[*ID]) {
	for id := range ids {
		p.beginGroup(codec.GroupIn(id))
	}
}

func (p *groupLimits) beginGroup(hash codec.GroupHash) {
	if p.knows(hash) {
		return
	}
	group := &groupState{}
	if p.maxLeased > 0 {
		group.read, group.leased = p.snapshot.Get(p.l.GroupLeasedKey(hash)), p.ledger.UnwrittenLeases(hash)
	}
	if p.rate.Count > 0 {
		group.bucket = state.NewBucket(hash, p.rate, p.snapshot.Get(p.l.BucketKey(hash)))
	}
	p.groups[hash] = group
}

// know waits for up to limit counters of groups, and takes what limits these from them and from the
// rows of their rates. If not all of that was read, it reads what may be missing, but cut says that
// there may be more groups. The error is ErrCorrupt or one of the store.
func (p *groupLimits) know(counters kv.Future[[]kv.KeyValue], limit int) (loads []state.GroupLoad, cut bool, err error) {
	rows := kv.Ready[[]kv.KeyValue](nil, nil)
	if p.rate.Count > 0 {
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
			p.groups[load.Hash] = &groupState{leased: load.Leased}
			if p.rate.Count > 0 {
				p.groups[load.Hash].bucket = state.NewBucket(load.Hash, p.rate, kv.Ready(row, nil))
			}
		}
	}
	return loads, cut, nil
}

// may reports whether an item of a group may be served now. The error is ErrCorrupt or one of the
// store.
func (p *groupLimits) may(hash codec.GroupHash) (bool, error) {
	if !p.limited(hash) {
		return true, nil
	}
	p.beginGroup(hash)
	group := p.groups[hash]

	if group.read != nil {
		n, err := state.ReadCounter(group.read)
		if err != nil {
			return false, err
		}
		group.read, group.leased = nil, group.leased+n
	}
	may := p.maxLeased == 0 || group.leased < p.maxLeased

	if group.bucket != nil {
		at, err := group.bucket.Next(p.asOf)
		if err != nil {
			return false, err
		}
		if !at.IsZero() {
			may, p.next = false, codec.Earliest(p.next, at)
		}
	}
	return may, nil
}

// take counts a delivery. The number of leased items is read without conflict: only leases raise it,
// and these conflict with each other. Acknowledgements never do.
func (p *groupLimits) take(hash codec.GroupHash, lease bool) {
	if !p.limited(hash) {
		return
	}
	group := p.groups[hash]
	if group.bucket != nil {
		group.bucket.Take(p.asOf)
	}
	if !lease || p.maxLeased == 0 {
		return
	}
	if group.leased++; !group.leases {
		group.leases = true
		p.ledger.ConflictLeasing(hash, true)
	}
}

// write writes what the deliveries have left of the rates.
func (p *groupLimits) write() {
	for _, group := range p.groups {
		if group.bucket != nil {
			group.bucket.Write(&p.ledger)
		}
	}
}

// none is the error of pops that find nothing that may be served, nil if they find nothing at all.
func (p *groupLimits) none() error {
	if !p.passed {
		return nil
	}
	return p.refused
}

// beginLimits finds out what limits the pops and leases, and starts to read what that depends on.
func (q *queuePops) beginLimits() error {
	if err := q.limits.beginLeased(q.indexes, q.leases); err != nil {
		return err
	}
	settings, err := q.ledger.ReadableSettings()
	if err != nil {
		return err
	}
	if q.groups.setUp(settings); q.groups.refused == nil {
		return nil
	}
	for end := range q.wants {
		q.groups.begin(q.ends.Ahead(End(end)))
	}
	return nil
}

// foundNothing is the error of a pop or lease that finds no item that it may have.
func (q *queuePops) foundNothing() error {
	none := q.groups.none()
	switch {
	case q.due.Behind() && none != nil: // leases that count may be over
		return notYet(none)
	case q.due.Behind(): // something may come back next
		return state.ErrNotYet
	}
	return cmp.Or(q.due.Err, none, ErrEmpty)
}

// noteTaken records an item that is taken.
func (q *queuePops) noteTaken(op *Op, id *ID) {
	if q.limits.bucket != nil {
		q.limits.bucket.Take(q.now)
	}
	size := q.l.GroupSizeOf(id)
	if size == 0 {
		return
	}

	q.moving.take(size)
	q.groups.take(codec.GroupIn(id), op.Kind == OpLease)
	if op.End == Front {
		q.served.Note(id)
	}
}

// writeTaken writes what noteTaken has recorded. The error is one of the store.
func (q *queuePops) writeTaken() error {
	if q.limits.bucket != nil {
		q.limits.bucket.Write(&q.ledger)
	}
	q.groups.write()
	return q.served.Write()
}
