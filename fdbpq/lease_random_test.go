package fdbpq_test

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// leaseModel is a queue with leases, as plain as it can be.
type leaseModel struct {
	items    map[string]*leaseItem // by value, which is unique
	now      time.Time
	settings fdbpq.Settings
	dead     []deadItem // in the order in which they died
	died     int        // how many have left dead
	gone     int        // how many have expired
}

// deadItem is an item that a dead-letter queue has to have.
type deadItem struct {
	id       fdbpq.ID // that it had in its queue
	value    string
	headers  bool
	letter   fdbpq.DeadLetter
	receiver string
}

type leaseItem struct {
	id         fdbpq.ID
	value      string
	ready      bool
	leased     bool // else it is delayed, unless ready
	due        time.Time
	wait       time.Duration
	deliveries int64
	token      fdbpq.Token // zero if no token holds
	headers    bool
	reason     string // of the last nak with one
	expires    time.Time
}

// settleDue returns what is due to the queue.
func (m *leaseModel) settleDue() { m.settleSome(0) }

// FallsDue is when something has to be done about an item; the zero time if nothing has.
func (i *leaseItem) fallsDue() time.Time {
	switch {
	case i.leased || !i.ready && (i.expires.IsZero() || i.due.Before(i.expires)):
		return i.due
	default:
		return i.expires
	}
}

// settleSome returns as much of what is due as a transaction does that handles that many, 0 for all, in the order in
// which it fell due. It reports whether there is more.
func (m *leaseModel) settleSome(limit int) (more bool) {
	var due []*leaseItem
	for _, i := range m.items {
		if at := i.fallsDue(); !at.IsZero() && !at.After(m.now) {
			due = append(due, i)
		}
	}
	slices.SortFunc(due, func(a, b *leaseItem) int {
		order := cmp.Compare(a.fallsDue().UnixMicro(), b.fallsDue().UnixMicro())
		if order == 0 && a.ready != b.ready { // held items come first
			order = 1
			if b.ready {
				order = -1
			}
		}
		return cmp.Or(order, compareIDs(a.id, b.id))
	})
	if more = limit > 0 && len(due) > limit; more {
		due = due[:limit]
	}

	for _, i := range due {
		if m.expired(i) {
			m.expire(i)
			continue
		}
		if i.leased && m.settings.MaxDeliver > 0 && i.deliveries >= m.settings.MaxDeliver {
			m.die(i, fdbpq.ReasonMaxDeliver)
			continue
		}
		if i.leased {
			i.due = i.due.Add(m.backoff(i))
		}
		i.ready, i.leased = !i.due.After(m.now), false
	}
	return more
}

func (m *leaseModel) expired(i *leaseItem) bool {
	return !i.expires.IsZero() && !i.expires.After(m.now)
}

func (m *leaseModel) expire(i *leaseItem) {
	delete(m.items, i.value)
	m.gone++
}

// backoff is how long an item stays back after its last delivery.
func (m *leaseModel) backoff(i *leaseItem) time.Duration {
	list := m.settings.Backoff
	switch {
	case len(list) == 0:
		return 0
	case int(i.deliveries) > len(list):
		return list[len(list)-1]
	}
	return list[i.deliveries-1]
}

// die moves an item to the dead-letter queue.
func (m *leaseModel) die(i *leaseItem, reason string) {
	delete(m.items, i.value)
	receiver := m.settings.DeadLetter
	if receiver == "" {
		receiver = "jobs-dead"
	}
	m.dead = append(m.dead, deadItem{i.id, i.value, i.headers, fdbpq.DeadLetter{
		Queue: "jobs", Reason: reason, At: m.now.UTC(), Deliveries: i.deliveries, Error: i.reason,
	}, receiver})
}

// popped returns the item that a pop takes at an end, nil if there is none. Those that have expired before it are gone.
func (m *leaseModel) popped(end fdbpq.End) *leaseItem {
	first := m.first(end)
	for _, i := range m.items {
		if i.ready && m.expired(i) && (first == nil || (compareIDs(i.id, first.id) < 0) == (end == fdbpq.Front)) {
			m.expire(i)
		}
	}
	return first
}

// first returns the ready item at an end, nil if there is none.
func (m *leaseModel) first(end fdbpq.End) *leaseItem {
	var best *leaseItem
	for _, i := range m.items {
		if !i.ready || m.expired(i) {
			continue
		}
		if best == nil || (compareIDs(i.id, best.id) < 0) == (end == fdbpq.Front) {
			best = i
		}
	}
	return best
}

// leaseRun drives a queue and the model with the same operations.
type leaseRun struct {
	*testing.T
	seed   uint64
	random *rand.Rand
	db     kv.Database
	q      fdbpq.Target
	fifo   bool
	model  leaseModel
	old    []fdbpq.Token // that were ever given
	popped []poppedItem

	keyspace *fdbpq.Keyspace
	pushed   int
}

// poppedItem is an item that nobody received.
type poppedItem struct {
	*leaseItem
	item fdbpq.Item
}

func (r *leaseRun) fail(format string, args ...any) {
	r.Helper()
	r.Fatalf("seed %d: "+format, append([]any{r.seed}, args...)...)
}

func (r *leaseRun) apply(ops ...fdbpq.Op) []fdbpq.Result {
	r.Helper()
	return r.applyBehind(0, ops...)
}

// applyMaybeBehind is apply of pops, leases and peeks, at times as if very much were due: more than that many, unless
// it is 0. The model has what came back then. The caller calls bringBackRest.
func (r *leaseRun) applyMaybeBehind(ops ...fdbpq.Op) (results []fdbpq.Result, behind bool) {
	r.Helper()
	page := 2 * r.random.IntN(2)
	results = r.applyBehind(page, ops...)
	return results, r.model.settleSome(page)
}

func (r *leaseRun) bringBackRest() {
	r.apply(fdbpq.Op{Kind: fdbpq.OpLen, Queue: r.q})
	r.model.settleDue()
}

// wantEmpty checks the error of a pop or peek that has found nothing.
func (r *leaseRun) wantEmpty(err error, behind bool) {
	r.Helper()
	if !errors.Is(err, fdbpq.ErrEmpty) || behind && !errors.Is(err, fdbpq.ErrNoRoom) {
		r.fail("%v from an empty queue, where more is due: %t", err, behind)
	}
}

func (r *leaseRun) applyBehind(page int, ops ...fdbpq.Op) []fdbpq.Result {
	r.Helper()
	results, err := kv.Transact(r.Context(), r.db, func(tx kv.Transaction) ([]fdbpq.Result, error) {
		return fdbpq.ApplyBehindAt(tx, ops, r.model.now, page)
	})
	if err != nil {
		r.fail("%v", err)
	}
	return results
}

func (r *leaseRun) end() fdbpq.End {
	if r.fifo || r.random.IntN(3) > 0 {
		return fdbpq.Front
	}
	return fdbpq.Back
}

func (r *leaseRun) push() {
	m := fdbpq.Message{Value: fmt.Append(nil, "item-", r.pushed)}
	r.pushed++
	if r.random.IntN(3) == 0 {
		m.Headers = map[string][]string{"Header": {"value"}}
	}
	op := fdbpq.Op{Kind: fdbpq.OpPush, Queue: r.q, Priority: r.random.Int64N(3), Message: m}
	due := r.model.now
	switch r.random.IntN(4) {
	case 0:
		op.Delay = time.Duration(r.random.IntN(3000)) * time.Millisecond
		due = due.Add(op.Delay)
	case 1:
		due = due.Add(time.Duration(r.random.IntN(3000)-500) * time.Millisecond)
		op.At = due
	}
	expires := time.Time{}
	switch r.random.IntN(5) {
	case 0:
		op.TTL = time.Duration(1000+r.random.IntN(4000)) * time.Millisecond
		expires = r.model.now.Add(op.TTL)
	case 1:
		expires = r.model.now.Add(time.Duration(r.random.IntN(4000)-500) * time.Millisecond)
		op.Message.Expires = expires
	case 2:
		op.TTL = fdbpq.Never
	default:
		if ttl := r.model.settings.TTL; ttl > 0 {
			expires = r.model.now.Add(ttl)
		}
	}
	result := r.apply(op)[0]
	ready := !due.After(r.model.now)
	if result.Err != nil || result.NextDue.IsZero() != ready || !ready && !result.NextDue.Equal(due) {
		r.fail("pushed with a delay until %v, now it is %v: next due %v, %v", due, r.model.now, result.NextDue, result.Err)
	}
	for _, i := range r.model.items {
		if i.id.Priority == result.Item.ID.Priority && compareIDs(i.id, result.Item.ID) >= 0 {
			r.fail("pushed as %v, before %q at %v", result.Item.ID, i.value, i.id)
		}
	}
	r.model.items[string(m.Value)] = &leaseItem{
		id: result.Item.ID, value: string(m.Value), ready: ready, due: due, headers: m.Headers != nil, expires: expires,
	}
}

// pop pops or leases several items at once.
func (r *leaseRun) pop() {
	kind, end, n := fdbpq.OpPop, r.end(), 1+r.random.IntN(3)
	if r.random.IntN(3) > 0 {
		kind = fdbpq.OpLease
	}
	wait := time.Duration(r.random.IntN(4)) * time.Second
	var ops []fdbpq.Op
	for range n {
		ops = append(ops, fdbpq.Op{Kind: kind, End: end, Queue: r.q, Lease: wait})
	}
	results, behind := r.applyMaybeBehind(ops...)
	for _, result := range results {
		r.got(kind, end, wait, result, behind)
	}
	r.bringBackRest()
}

// got compares one pop or lease with the model. behind says that more is due.
func (r *leaseRun) got(kind fdbpq.OpKind, end fdbpq.End, wait time.Duration, result fdbpq.Result, behind bool) {
	r.Helper()
	want := r.model.popped(end)
	if want == nil {
		r.wantEmpty(result.Err, behind)
		return
	}
	if result.Err != nil || string(result.Item.Value) != want.value || result.Item.ID != want.id {
		r.fail("got %q at %v, %v: want %q at %v", result.Item.Value, result.Item.ID, result.Err, want.value, want.id)
	}
	if !result.Item.Expires.Equal(want.expires) {
		r.fail("%q expires at %v, want %v", want.value, result.Item.Expires, want.expires)
	}
	if kind == fdbpq.OpPop {
		delete(r.model.items, want.value)
		r.popped = append(r.popped, poppedItem{want, result.Item})
		return
	}
	if wait == 0 {
		wait = cmp.Or(r.model.settings.AckWait, fdbpq.DefaultLease)
	}
	want.ready, want.leased, want.wait, want.due, want.token = false, true, wait, r.model.now.Add(wait), result.Lease.Token
	want.deliveries++
	r.old = append(r.old, want.token)
	if result.Lease.Deliveries != want.deliveries || !result.Lease.Until.Equal(want.due) {
		r.fail("%q: delivery %d until %v, want %d until %v", want.value, result.Lease.Deliveries, result.Lease.Until, want.deliveries, want.due)
	}
	if again, err := fdbpq.ParseToken(want.token.String()); err != nil || again != want.token || len(want.token.String()) > 80 {
		r.fail("token %v is read as %v, %v", want.token, again, err)
	}
}

// restore puts up to three popped items back, some of them twice.
func (r *leaseRun) restore() {
	var ops []fdbpq.Op
	for range min(len(r.popped), 1+r.random.IntN(3)) {
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpRestore, Queue: r.q, Item: &r.popped[r.random.IntN(len(r.popped))].item})
	}
	if len(ops) == 0 {
		return
	}
	for i, result := range r.apply(ops...) {
		at := slices.IndexFunc(r.popped, func(p poppedItem) bool { return p.id == ops[i].Item.ID })
		there := at < 0 || r.model.items[r.popped[at].value] != nil
		if there != errors.Is(result.Err, fdbpq.ErrExists) || !there && result.Err != nil {
			r.fail("restored %v, which is there: %t: %v", ops[i].Item.ID, there, result.Err)
		}
		if !there && !r.model.expired(r.popped[at].leaseItem) {
			r.model.items[r.popped[at].value] = r.popped[at].leaseItem
		}
	}
	r.popped = slices.DeleteFunc(r.popped, func(p poppedItem) bool { return r.model.items[p.value] != nil })
}

// look peeks and counts.
func (r *leaseRun) look() {
	end := r.end()
	peeked, behind := r.applyMaybeBehind(fdbpq.Op{Kind: fdbpq.OpPeek, End: end, Queue: r.q})
	if want := r.model.first(end); want == nil {
		r.wantEmpty(peeked[0].Err, behind)
	} else if string(peeked[0].Item.Value) != want.value {
		r.fail("peeked at %q, %v: want %+v", peeked[0].Item.Value, peeked[0].Err, want)
	}
	length := r.apply(fdbpq.Op{Kind: fdbpq.OpLen, Queue: r.q})[0]
	r.model.settleDue()
	ready := int64(0)
	for _, i := range r.model.items {
		if i.ready {
			ready++
		}
	}
	if length.Err != nil || length.Len != ready {
		r.fail("%d items are counted, %v: want %d", length.Len, length.Err, ready)
	}
}

// settle uses a token, often an old one. With +NXT another item is leased if it holds.
func (r *leaseRun) settle() {
	if len(r.old) == 0 {
		return
	}
	token := r.old[r.random.IntN(len(r.old))]
	if r.random.IntN(2) == 0 {
		token = r.old[len(r.old)-1]
	}
	var item *leaseItem
	for _, i := range r.model.items {
		if i.token == token {
			item = i
		}
	}
	op := fdbpq.Op{Queue: r.q, Token: token}
	switch r.random.IntN(7) {
	case 0, 1, 2:
		op.Kind = fdbpq.OpNak
		if op.Delay = time.Duration(r.random.IntN(3)) * time.Second; r.random.IntN(2) == 0 {
			op.Delay = fdbpq.Backoff
		}
		op.Uncounted = r.random.IntN(3) == 0
		if r.random.IntN(3) == 0 {
			op.Reason = fmt.Sprint("reason ", r.random.IntN(100))
		}
	case 3:
		op.Kind = fdbpq.OpExtend
	case 4:
		op.Kind = fdbpq.OpTerm
		if r.random.IntN(2) == 0 {
			op.Reason = "no\nuse"
		}
	default:
		op.Kind = fdbpq.OpAck
	}
	ops := []fdbpq.Op{op}
	next := op.Kind == fdbpq.OpAck && r.random.IntN(2) == 0
	if next {
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpLease, Queue: r.q, End: token.End, Follows: true})
	}
	results := r.apply(ops...)
	if held := item != nil; held == errors.Is(results[0].Err, fdbpq.ErrLeaseLost) || held && results[0].Err != nil {
		r.fail("kind %d of a token that holds: %t: %v", op.Kind, held, results[0].Err)
	}
	if item == nil {
		if next {
			r.model.settleDue()
		}
		if next && !errors.Is(results[1].Err, fdbpq.ErrLeaseLost) {
			r.fail("the next was leased although the token is lost: %v", results[1].Err)
		}
		return
	}
	switch op.Kind {
	case fdbpq.OpAck:
		delete(r.model.items, item.value)
	case fdbpq.OpNak:
		if r.model.expired(item) {
			r.model.expire(item)
			break
		}
		if op.Reason != "" {
			item.reason = op.Reason
		}
		if !op.Uncounted && r.model.settings.MaxDeliver > 0 && item.deliveries >= r.model.settings.MaxDeliver {
			r.model.die(item, fdbpq.ReasonMaxDeliver)
			break
		}
		delay := op.Delay
		if delay == fdbpq.Backoff {
			delay = 0
			if !op.Uncounted {
				delay = r.model.backoff(item)
			}
		}
		item.token, item.leased, item.ready, item.due = fdbpq.Token{}, false, delay == 0, r.model.now.Add(delay)
		if op.Uncounted {
			item.deliveries--
		}
	case fdbpq.OpTerm:
		reason := fdbpq.ReasonTerminated
		if op.Reason != "" {
			reason = "no use"
		}
		r.model.die(item, reason)
	case fdbpq.OpExtend:
		item.ready, item.leased, item.due = false, true, r.model.now.Add(item.wait)
		if !results[0].Lease.Until.Equal(item.due) {
			r.fail("extended until %v, want %v", results[0].Lease.Until, item.due)
		}
	}
	if next {
		r.model.settleDue()
		r.got(fdbpq.OpLease, token.End, item.wait, results[1], false)
	}
}

// Leases, acknowledgements, delays, of pushes as well, and expiry do what the plain model does: an item is with one
// holder at a time, a token works for one delivery, nothing that is settled comes back, and
// what comes back does so when it is due, at its old place.
func TestLeasesRandomly(t *testing.T) {
	onEngines(t, func(f *fixture) {
		for _, fifo := range []bool{false, true} {
			seed := rand.Uint64()
			r := &leaseRun{
				T: f.T, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), db: f.db, fifo: fifo,
				model: leaseModel{items: map[string]*leaseItem{}, now: time.UnixMicro(time.Now().UnixMicro())},
			}
			keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
			if err != nil {
				t.Fatal(err)
			}
			r.keyspace = keyspace
			r.q = r.queue("jobs")
			steps, few := f.steps(400)
			for range steps {
				switch n := r.random.IntN(14); {
				case n < 3:
					r.push()
				case n < 6:
					r.pop()
				case n < 8:
					r.settle()
				case n == 8:
					r.settleTogether()
				case n == 9:
					r.look()
				case n == 10:
					r.restore()
				case n == 11:
					r.configure()
				case n == 12 && r.random.IntN(4) == 0:
					r.checkDead()
				default:
					r.model.now = r.model.now.Add(time.Duration(r.random.IntN(2500)) * time.Millisecond)
				}
			}
			r.checkAll(few)
		}
	})
}

// queue returns a queue of the kind that is tested.
func (r *leaseRun) queue(name string) (target fdbpq.Target) {
	r.Helper()
	var err error
	if r.fifo {
		target, err = r.keyspace.Queue(name)
	} else {
		target, err = r.keyspace.PriorityQueue(name)
	}
	if err != nil {
		r.fail("%v", err)
	}
	return target
}

// configure changes a setting, sometimes to one that is refused.
func (r *leaseRun) configure() {
	change := func(s *fdbpq.Settings) {}
	valid := true
	switch n := r.random.Int64N(5); r.random.IntN(7) {
	case 6:
		change = func(s *fdbpq.Settings) { s.TTL = time.Duration(n) * time.Second }
	case 0:
		change = func(s *fdbpq.Settings) { s.AckWait = time.Duration(n) * time.Second }
	case 1, 2:
		var list []time.Duration
		for range n {
			list = append(list, time.Duration(r.random.Int64N(3000))*time.Millisecond)
		}
		change = func(s *fdbpq.Settings) { s.Backoff = list }
	case 3:
		change = func(s *fdbpq.Settings) { s.MaxDeliver = n }
	case 4:
		name := []string{"", "failed", "jobs-dead"}[n%3]
		change = func(s *fdbpq.Settings) { s.DeadLetter = name }
	case 5:
		change = func(s *fdbpq.Settings) { s.MaxDeliver, s.DeadLetter = 1, "jobs" }
		valid = false
	}
	result := r.apply(fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: r.q, Configure: change})[0]
	if !valid {
		if !errors.Is(result.Err, fdbpq.ErrSettings) {
			r.fail("a queue is its own dead-letter queue: %v", result.Err)
		}
	} else if change(&r.model.settings); result.Err != nil || !reflect.DeepEqual(*result.Settings, r.model.settings) {
		r.fail("configured %+v, %v: want %+v", result.Settings, result.Err, r.model.settings)
	}
	result = r.apply(fdbpq.Op{Kind: fdbpq.OpSettings, Queue: r.q})[0]
	if result.Err != nil || !slices.Equal(result.Settings.Backoff, r.model.settings.Backoff) || result.Settings.MaxDeliver != r.model.settings.MaxDeliver ||
		result.Settings.TTL != r.model.settings.TTL || result.Settings.AckWait != r.model.settings.AckWait || result.Settings.DeadLetter != r.model.settings.DeadLetter {
		r.fail("the settings are %+v, %v: want %+v", result.Settings, result.Err, r.model.settings)
	}
}

// checkDead takes everything out of the dead-letter queues.
func (r *leaseRun) checkDead() {
	r.Helper()
	for _, name := range []string{"jobs-dead", "failed"} {
		wants := map[string]deadItem{}
		for _, d := range r.model.dead {
			if d.receiver == name {
				wants[d.value] = d
			}
		}
		q := r.queue(name)
		if n := r.apply(fdbpq.Op{Kind: fdbpq.OpLen, Queue: q})[0].Len; n != int64(len(wants)) {
			r.fail("%q has %d items, want %d", name, n, len(wants))
		}
		var last fdbpq.DeadLetter
		var priority int64
		for range len(wants) {
			result := r.apply(fdbpq.Op{Kind: fdbpq.OpPop, Queue: q})[0]
			item := result.Item
			want, there := wants[string(item.Value)]
			if result.Err != nil || !there || item.ID.Priority != want.id.Priority || item.ID == want.id ||
				!item.PushedAt.Equal(time.UnixMicro(int64(binary.BigEndian.Uint64(want.id.Random[:])))) ||
				(item.Headers != nil) != want.headers || !item.Expires.IsZero() || item.DeadLetter == nil || *item.DeadLetter != want.letter {
				r.fail("%q has %+v with %+v, %v: want %+v", name, item, item.DeadLetter, result.Err, want)
			}
			if item.ID.Priority == priority && item.DeadLetter.At.Before(last.At) {
				r.fail("%q was buried at %v and comes after one buried at %v", item.Value, item.DeadLetter.At, last.At)
			}
			priority, last = item.ID.Priority, *item.DeadLetter
			delete(wants, string(item.Value))
		}
	}
	r.model.died += len(r.model.dead)
	r.model.dead = nil
}

// checkAll compares what is stored with the model, and with itself.
func (r *leaseRun) checkAll(few bool) {
	r.Helper()
	if _, err := fdbpqtest.CheckInvariants(r.Context(), r.db, "pq", "q"); err != nil {
		r.fail("%v", err)
	}
	r.model.now = r.model.now.Add(24 * time.Hour)
	r.model.settleDue()
	r.apply(fdbpq.Op{Kind: fdbpq.OpPeek, Queue: r.q}) // brings back what is due
	r.checkDead()
	if !few && (r.model.died == 0 || r.model.gone == 0) {
		r.fail("%d died and %d expired", r.model.died, r.model.gone)
	}
	var want, got []string
	for i := r.model.first(fdbpq.Front); i != nil; i = r.model.first(fdbpq.Front) {
		want = append(want, i.value)
		delete(r.model.items, i.value)
	}
	for {
		result := r.apply(fdbpq.Op{Kind: fdbpq.OpPop, Queue: r.q})[0]
		if errors.Is(result.Err, fdbpq.ErrEmpty) {
			break
		}
		got = append(got, string(result.Item.Value))
	}
	if !slices.Equal(got, want) {
		r.fail("left are %q, want %q", got, want)
	}
	contents, err := fdbpqtest.CheckInvariants(r.Context(), r.db, "pq", "q")
	if err != nil || contents.Items > 0 {
		r.fail("when all is popped, %d items are left: %v", contents.Items, err)
	}
}
