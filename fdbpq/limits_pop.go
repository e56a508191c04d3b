package fdbpq

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// popLimits is what limits the pops and leases of one queue, all together and group by group.
// Nothing is stored about groups that are at a limit: pops pass over their items, and the next
// transaction looks again.
type popLimits struct {
	*queueTxn
	set       *Settings
	groupRate settings.Rate
	queue     quota
	groups    map[codec.GroupHash]*quota // nil without limits of groups
	page      map[codec.GroupHash]*quota // of others: see loadGroups

	reserved   int64     // places for leases that follow the acknowledgements that freed them
	passedOver bool      // pops passed over items because of their groups
	next       time.Time // earliest time at which a rate that is used up gives a token
}

// quota is the limits of the queue, or of one group, and how much of them is used.
type quota struct {
	paused     bool              // a group in Settings.PausedGroups: nothing else counts
	maxLeased  int64             // 0 is no limit
	counter    kv.Future[[]byte] // of leased items; nil without a limit, and once it is read
	leased     int64             // until counter is read, what this transaction adds; then all
	conflicted bool              // the transaction has leased an item of the group
	bucket     *state.Bucket     // nil without a rate
}

// countLeased returns how many items are leased. The error is ErrCorrupt or one of the store.
func (u *quota) countLeased() (int64, error) {
	if u.counter != nil {
		n, err := state.ReadCounter(u.counter)
		if err != nil {
			return 0, err
		}
		u.counter, u.leased = nil, u.leased+n
	}
	return u.leased, nil
}

// nextToken returns when the rate gives a token, zero if that is now. The error is one of the
// store.
func (p *popLimits) nextToken(u *quota) (at time.Time, err error) {
	at, err = u.bucket.Next(p.asOf)
	p.next = codec.Earliest(p.next, at)
	return at, err
}

// setUp finds out what the limits are. The error is one of the store.
func (p *popLimits) setUp(set *Settings) error {
	p.set = set
	if set.LimitsGroups() {
		p.groups = map[codec.GroupHash]*quota{}
		// A rate that this version cannot parse is ignored.
		p.groupRate, _ = settings.ParseRate(set.RatePerGroup)
		for _, name := range set.PausedGroups {
			hash, err := p.secrets.Hash(p.snapshot, p.l, name)
			if err != nil {
				return err
			}
			p.groups[hash] = &quota{paused: true}
		}
	}
	return nil
}

// begin finds out what limits the pops and leases at the given indexes of txn.ops, and starts to
// read what that depends on.
func (p *popLimits) begin(indexes []int, ends *state.Ends) error {
	set, err := p.ledger.ReadableSettings()
	if err != nil {
		return err
	}

	if err := p.setUp(set); err != nil {
		return err
	}
	rate, err := settings.ParseRate(set.Rate)
	if err == nil && rate.Count > 0 { // a rate that cannot be parsed is ignored here too
		row := p.snapshot.Get(p.l.BucketKey(codec.NotIndexed))
		p.queue.bucket = state.NewBucket(codec.NotIndexed, rate, row)
	}

	// The counter is read with conflict: leases of other transactions count as well.
	leases := func(i int) bool { return p.ops[i].Kind == OpLease }
	if set.MaxLeased > 0 && slices.ContainsFunc(indexes, leases) {
		p.queue.maxLeased, p.queue.leased = set.MaxLeased, p.ledger.Held(Leased)
		p.queue.counter = p.tx.Get(p.l.StateCounterKey(Leased))
		for _, i := range indexes {
			if p.hasPlace(i) {
				p.reserved++
			}
		}
	}

	for end := range ends.Walks {
		p.beginGroups(ends.Walks[end].IDs())
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

// hasPlace reports whether an operation is a lease that follows acknowledgements and gets the place
// of one of them. The place stays reserved for it while other leases run.
func (p *popLimits) hasPlace(i int) bool {
	return p.ops[i].Kind == OpLease && p.results[i].place
}

// releasePlaces stops reserving places for operation i and its followers, which run now.
func (p *popLimits) releasePlaces(i int) {
	for ; i < len(p.ops) && p.hasPlace(i); i++ {
		p.reserved--
	}
}

// checkLease returns ErrMaxLeased if no further item may be leased. The error may also be
// ErrCorrupt or one of the store.
func (p *popLimits) checkLease() error {
	n, err := p.queue.countLeased()
	if err != nil || p.queue.maxLeased == 0 || n+p.reserved < p.queue.maxLeased {
		return err
	}
	err = fmt.Errorf("%w: %d", ErrMaxLeased, p.queue.maxLeased)
	if p.due.Behind() { // some of the leases may have run out
		err = notYet(err)
	}
	return err
}

// isKnown reports whether the limits of a group are known or being read, or it has none.
func (p *popLimits) isKnown(hash codec.GroupHash) bool {
	return p.groups == nil || hash <= codec.NoGroup || p.groups[hash] != nil
}

// beginGroups starts to read the counters and rates of the groups of some items. It reads without
// conflict; countDelivery makes leases conflict.
func (p *popLimits) beginGroups(ids iter.Seq[*ID]) {
	for id := range ids {
		if hash := codec.GroupIn(id); !p.isKnown(hash) {
			p.groups[hash] = p.readGroup(hash)
		}
	}
}

// readGroup starts to read what limits a group.
func (p *popLimits) readGroup(hash codec.GroupHash) *quota {
	u := &quota{maxLeased: p.set.MaxLeasedPerGroup}
	if u.maxLeased > 0 {
		counter := codec.GroupCounter{Hash: hash, Of: codec.GroupLeased}
		u.counter = p.snapshot.Get(p.l.GroupCounterKey(counter))
		u.leased = p.ledger.UnwrittenLeases(hash)
	}
	if p.groupRate.Count > 0 {
		u.bucket = state.NewBucket(hash, p.groupRate, p.snapshot.Get(p.l.BucketKey(hash)))
	}
	return u
}

// mayServe reports whether an item of a group may be served now. Its limits must be known or being
// read. The error is ErrCorrupt or one of the store.
func (p *popLimits) mayServe(hash codec.GroupHash) (bool, error) {
	if p.groups == nil || hash <= codec.NoGroup {
		return true, nil
	}

	u := cmp.Or(p.page[hash], p.groups[hash])
	n, err := u.countLeased()
	if err != nil {
		return false, err
	}
	at, err := p.nextToken(u)
	served := !u.paused && (u.maxLeased == 0 || n < u.maxLeased) && at.IsZero()
	p.passedOver = p.passedOver || !served
	return served, err
}

// countDelivery counts an item that a pop or lease has taken.
func (p *popLimits) countDelivery(hash codec.GroupHash, lease bool) {
	p.queue.countDelivery(p.asOf, lease)
	u := p.groups[hash]
	if u == nil {
		return
	}
	u.countDelivery(p.asOf, lease)

	// The number of leased items of a group is read without conflict: only leases raise it, and
	// these conflict with each other here. Acknowledgements never do.
	if lease && u.maxLeased > 0 && !u.conflicted {
		u.conflicted = true
		p.ledger.ConflictLeasing(hash, true)
	}
}

func (u *quota) countDelivery(now time.Time, lease bool) {
	u.bucket.Take(now)
	if lease {
		u.leased++
	}
}

// write writes the buckets of the rates, from which the deliveries have taken tokens.
func (p *popLimits) write() {
	p.queue.bucket.Write(&p.ledger)
	for _, u := range p.groups {
		u.bucket.Write(&p.ledger)
	}
}

// loadGroups waits for a page of the counters of groups, and takes what limits these groups from
// the counters and from the rows of their rates. rest is as in state.GroupLoads. The error is
// ErrCorrupt or one of the store.
func (p *popLimits) loadGroups(
	counters kv.Future[[]kv.KeyValue],
) (loads []state.GroupLoad, rest kv.Range, err error) {
	loads, rest, err = state.GroupLoads(p.l, counters, p.bounds.groupRows)
	if err != nil || len(loads) == 0 {
		return nil, rest, err
	}

	var pairs []kv.KeyValue
	if p.groupRate.Count > 0 {
		rows := kv.Range{Begin: p.l.BucketKey(loads[0].Hash), End: p.l.GroupBuckets().End}
		if !rest.Empty() {
			rows.End = p.l.BucketKey(loads[len(loads)-1].Hash + 1)
		}
		read := p.snapshot.GetRange(rows, kv.RangeOptions{Limit: p.bounds.groupRows})
		if pairs, err = read.Get(); err != nil {
			return nil, rest, err
		}
	}
	buckets := make(map[codec.GroupHash][]byte, len(pairs))
	for _, pair := range pairs {
		if hash, err := p.l.ParseBucketKey(pair.Key); err == nil {
			buckets[hash] = pair.Value
		}
	}

	p.page = make(map[codec.GroupHash]*quota, len(loads))
	for _, load := range loads {
		row := buckets[load.Hash]
		switch {
		case p.isKnown(load.Hash):

		case row == nil && len(pairs) == p.bounds.groupRows: // it may be behind those read
			p.page[load.Hash] = p.readGroup(load.Hash)

		default:
			u := &quota{maxLeased: p.set.MaxLeasedPerGroup, leased: load.Leased}
			if p.groupRate.Count > 0 {
				u.bucket = state.NewBucket(load.Hash, p.groupRate, kv.Ready(row, nil))
			}
			p.page[load.Hash] = u
		}
	}
	return loads, rest, nil
}
