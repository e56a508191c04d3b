package state

import (
	"encoding/binary"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Joins is what one transaction changes of joins: see codec.KindJoin. The zero value is ready to
// use.
type Joins struct {
	joins   map[string]*join // by JoinKey
	members map[membersOf]*members
}

// membersOf names the members of a joiner in one queue.
type membersOf struct {
	prefix string // of the queue
	joiner codec.Joiner
}

// members is the members of a joiner in one queue as one transaction sees them.
type members struct {
	*join
	in    *codec.Layout // the queue
	delta int64         // what to add to their counter
}

// join is a joiner as one transaction sees it.
type join struct {
	l      *codec.Layout
	id     codec.ID
	key    kv.Future[[]byte] // its JoinKey; nil before it is read
	opened bool              // by this transaction
	fired  bool              // by this transaction
	counts codec.JoinCounts  // what the transaction adds to them
}

// of returns the join of a joiner.
func (j *Joins) of(l *codec.Layout, joiner *codec.ID) *join {
	key := l.JoinKey(joiner)
	one := j.joins[string(key)]
	if one == nil {
		if j.joins == nil {
			j.joins, j.members = map[string]*join{}, map[membersOf]*members{}
		}
		one = &join{l: l, id: *joiner}
		j.joins[string(key)] = one
	}
	return one
}

// close notes that the joiner does not wait any more.
func (j *join) close() { j.key, j.opened = kv.Ready[[]byte](nil, nil), false }

// begin starts to read whether the joiner waits. The transaction conflicts with its end.
func (j *join) begin(tx kv.Transaction) {
	if j.key == nil {
		j.key = tx.Get(j.l.JoinKey(&j.id))
	}
}

// waits waits for what begin started.
func (j *join) waits() (bool, error) {
	value, err := j.key.Get()
	return value != nil, err
}

// BeginJoiner starts to read whether a joiner of a queue waits.
func (g *Ledger) BeginJoiner(joiner *codec.Joiner) {
	g.joined(joiner).begin(g.Tx)
}

// Waits reports whether a joiner waits. The transaction conflicts with its end. The error is one of
// the store.
func (g *Ledger) Waits(joiner *codec.Joiner) (bool, error) {
	g.BeginJoiner(joiner)
	return g.joined(joiner).waits()
}

// joined is the members in this queue of the joiner that one of them names.
func (g *Ledger) joined(joiner *codec.Joiner) *members {
	j, of := g.joins(), membersOf{g.L.Prefix, *joiner}
	some := j.members[of]
	if some == nil { // the keys of a joiner are made once, not for each member
		some = &members{join: j.of(g.L.Joined(joiner), &joiner.ID), in: g.L}
		j.members[of] = some
	}
	return some
}

// joins is the Joins of the transaction. Without them the ledger has its own.
func (g *Ledger) joins() *Joins {
	if g.Joins == nil {
		g.Joins, g.ownJoins = &Joins{}, true
	}
	return g.Joins
}

// openJoin writes that an item waits for members from now on.
func (g *Ledger) openJoin(id *codec.ID) {
	g.Tx.Set(g.L.JoinKey(id), []byte{})
	one := g.joins().of(g.L, id)
	one.key, one.opened = kv.Ready([]byte{}, nil), true
}

// closeJoin removes what openJoin wrote, and the counters.
func (g *Ledger) closeJoin(id *codec.ID) {
	g.Tx.Clear(g.L.JoinKey(id))
	for n := range (codec.JoinCounts{}) {
		g.Tx.Clear(g.L.JoinCounterKey(id, n))
	}
	g.joins().of(g.L, id).close()
}

// noteMember notes that an item of this queue has become a member of a join, or ceased to be one.
func (g *Ledger) noteMember(joiner *codec.Joiner, change codec.MemberEnd) {
	if g.L.List == nil { // this program does not know the Keyspace
		return
	}
	some := g.joined(joiner)
	some.add(change, 1)
	some.delta += change[codec.JoinOpen]
}

// add adds a change so many times.
func (j *join) add(change codec.MemberEnd, times int64) {
	for n := range j.counts {
		j.counts[n] += times * change[n]
	}
}

// unlink does what an item's properties ask for when it leaves its place.
func (g *Ledger) unlink(id *codec.ID, m *codec.Message, end codec.MemberEnd) {
	g.deleteAlias(id, m.First)
	if m.Joiner != nil {
		g.noteMember(m.Joiner, end)
	}
	if m.Join > 0 {
		g.closeJoin(id)
	}
}

// JoinRead is a joiner being read, to find out whether it has to wait any longer.
type JoinRead struct {
	join  *join
	pairs kv.Future[[]kv.KeyValue]
}

// BeginJoin starts to read the join of an item that may be a joiner.
func (g *Ledger) BeginJoin(id *codec.ID) *JoinRead {
	pairs := g.Tx.Snapshot().GetRange(g.L.JoinRange(id), kv.RangeOptions{})
	return &JoinRead{g.joins().of(g.L, id), pairs}
}

// Fired reports whether this transaction has found before that the joiner need not wait.
func (r *JoinRead) Fired() bool { return r.join.fired }

// Finish waits for what BeginJoin started. It returns the counts, and whether the item is a joiner
// that waits. The error is ErrCorrupt or one of the store.
func (r *JoinRead) Finish() (counts codec.JoinCounts, waits bool, err error) {
	pairs, err := r.pairs.Get()
	if err != nil {
		return counts, false, err
	}

	l, counts := r.join.l, r.join.counts
	own := len(l.JoinKey(&r.join.id))
	for _, pair := range pairs {
		if len(pair.Key) == own {
			waits = true
			continue
		}
		n, _, err := tuple.DecodeInt(pair.Key[own:])
		if err != nil || n < 0 || n >= int64(len(counts)) {
			return counts, false, codec.ErrCorrupt
		}
		number, err := ParseLength(pair.Value)
		if err != nil {
			return counts, false, err
		}
		counts[n] += number
	}
	return counts, waits, nil
}

// Fire notes that the joiner, which waits no longer, will be ready. If that is because no member is
// open, the transaction conflicts with any that adds one.
func (r *JoinRead) Fire(g *Ledger, counts *codec.JoinCounts) {
	r.join.fired = true
	if counts[codec.JoinOpen] <= 0 {
		g.Tx.AddReadConflict(kv.SingleKey(g.L.JoinCounterKey(&r.join.id, codec.JoinOpen)))
	}
}

// FireJoin makes a joiner ready, which has been read in full.
func (g *Ledger) FireJoin(h *codec.Record, s *ItemRead, counts *codec.JoinCounts) {
	m := s.Item.Message
	m.Join = 0
	m.SetHeader(codec.HeaderJoined, []string{counts.String()})

	g.Unhold(h)
	g.rewrite(h, s, &m)
}

// rewrite puts a detached item that was read in full back to its place, with another message.
func (g *Ledger) rewrite(h *codec.Record, s *ItemRead, m *codec.Message) {
	h.Message = &s.Item.Message
	g.countRemoved(h)
	g.unlink(&h.ID, h.Message, codec.MemberMoved)
	s.clear(g.Tx)
	g.Attach(&h.ID, g.AddRest(&h.ID, m))
	g.SetExpiry(&h.ID, codec.LastingOf(m))
}

// Mark is a joiner that has to be looked at, at a time: its last member has ended, or may have.
type Mark struct {
	L  *codec.Layout
	At time.Time
}

// Flush writes what has changed. serial says that no other transaction runs at the same time. The
// error is one of the store.
func (j *Joins) Flush(tx kv.Transaction, now time.Time, serial bool) (marks []Mark, err error) {
	for of, some := range j.members {
		key := some.in.MembersKey(&of.joiner)
		if !some.setNew(tx, key, some.delta) {
			addToCounter(tx, key, some.delta)
		}
	}
	open := make(map[*join]kv.Future[[]byte], len(j.joins))
	for _, one := range j.joins {
		if one.counts != (codec.JoinCounts{}) || one.opened {
			one.begin(tx)
			open[one] = kv.Ready[[]byte](nil, nil)
			if !one.opened {
				open[one] = tx.Snapshot().Get(one.l.JoinCounterKey(&one.id, codec.JoinOpen))
			}
		}
	}

	for one, read := range open {
		waits, err := one.waits()
		if err != nil {
			return nil, err
		}
		n, err := ReadCounter(read)
		if codec.UnlessCorrupt(err) != nil {
			return nil, err
		}
		if !waits {
			continue
		}

		for n, delta := range one.counts {
			key := one.l.JoinCounterKey(&one.id, n)
			if delta != 0 && !one.setNew(tx, key, delta) {
				tx.Add(key, delta)
			}
		}
		if at := one.look(n, now, serial); !at.IsZero() {
			tx.Set(one.l.DueKey(at, one.l.HeldKey(&one.id)), codec.UniqueBytes(1))
			marks = append(marks, Mark{one.l, at})
		}
	}
	clear(j.joins)
	clear(j.members)
	return marks, nil
}

// setNew sets a counter if this transaction has opened the joiner, and reports whether it has:
// nobody else can have added to the counter. The embedded store has to read before it adds.
func (j *join) setNew(tx kv.Transaction, key []byte, n int64) bool {
	if j.opened && n != 0 {
		tx.Set(key, binary.LittleEndian.AppendUint64(nil, uint64(n)))
	}
	return j.opened
}

// look returns when the joiner has to be looked at, because of what the transaction has changed;
// zero if it need not be. open is how many members were open before.
func (j *join) look(open int64, now time.Time, serial bool) time.Time {
	change := j.counts[codec.JoinOpen]
	switch {
	case open+change <= 0:
		return codec.Micros(now)
	case change >= 0 || serial:
		return time.Time{}
	}
	return codec.Micros(now.Truncate(time.Second).Add(time.Second))
}

// purgedJoins is about the most bytes that a purge takes in a transaction to end members.
const purgedJoins = 5_000_000

// endMembers ends all members among the items of a queue, which are removed, and the joiners among
// them. The error is ErrJoins if there are too many joins, or one of the store.
func (g *Ledger) endMembers() error {
	pairs, err := g.Tx.GetRange(g.L.MembersRange(), kv.RangeOptions{Limit: MostGroupRows}).Get()
	if err != nil {
		return err
	}
	size := 0 // that ending them takes in the transaction
	for _, pair := range pairs {
		size += len(codec.JoinCounts{}) * 3 * (2*len(pair.Key) + len(g.L.Prefix))
	}
	if len(pairs) == MostGroupRows || size > purgedJoins {
		return codec.ErrManyJoins
	}

	j := g.joins()
	for _, pair := range pairs {
		joiner, err := g.L.ParseMembersKey(pair.Key)
		n, numberErr := ParseLength(pair.Value)
		if err == nil && numberErr == nil {
			g.joined(&joiner).add(codec.MemberGone, n)
		}
	}
	for of, some := range j.members { // what the transaction itself has changed is not there yet
		if of.prefix == g.L.Prefix {
			some.add(codec.MemberGone, some.delta)
			some.delta = 0
		}
	}
	for _, one := range j.joins {
		if one.l.Prefix == g.L.Prefix {
			one.close()
		}
	}
	return nil
}
