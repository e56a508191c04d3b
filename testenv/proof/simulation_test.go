package proof_test

import (
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/testenv/proof"
)

// unit is one tick of the simulation, in nanoseconds of its history: more than clocks may
// differ.
const unit = 20_000_000

// leases is the part of a simulation that leases items.
type leases struct {
	now    int64 // in units
	of     map[fdbpq.ID]*leased
	away   []fdbpq.ID // leased or delayed
	tokens []*proof.Operation
	ended  bool // only pops follow
}

// expiring is the part of a simulation in which items expire.
type expiring struct {
	at     map[fdbpq.ID]int64 // in units
	ghosts []fdbpq.ID         // those that have
}

// expire removes what has expired from the queue.
func (s *simulation) expire() {
	for _, id := range slices.Clone(s.items) {
		if at := s.at[id]; at > 0 && at <= s.now {
			s.items = slices.DeleteFunc(s.items, func(x fdbpq.ID) bool { return x == id })
			s.ghosts = append(s.ghosts, id)
		}
	}
}

// missesExpiry makes a pop get an item that has expired, or lose one that has not, whenever in
// its operation the push took place. One that is just back from somewhere may not be seen yet.
func (s *simulation) missesExpiry(op *proof.Operation) {
	margin := s.overlap + 2
	for i, id := range s.ghosts {
		if s.at[id]+margin < op.Call/unit && s.strikes("expired and served") {
			s.ghosts = slices.Delete(s.ghosts, i, i+1)
			s.show(op, id)
			return
		}
	}
	if len(s.items) == 0 {
		return
	}
	i := s.end(op)
	id := s.items[i]
	if s.of[id] == nil && s.at[id] > op.Return/unit+margin && s.strikes("expired early") {
		s.items = slices.Delete(s.items, i, i+1)
	}
}

// leased is an item that was leased, or pushed with a delay.
type leased struct {
	fence, deliveries int64
	until             int64 // in units
	delayed           bool
	lost              bool // its deliveries were forgotten, and nobody has noticed yet
	late              int64
}

const simulatedWait = 60

// bringBack returns what is due.
func (s *simulation) bringBack() {
	for _, id := range slices.Clone(s.away) {
		l := s.of[id]
		if s.ended {
			l.late = 0
		}
		if l.until+l.late > s.now {
			continue
		}
		if l.late == 0 && s.strikes("lease over late") {
			s.bugs-- // unless somebody notices
			l.late = 100
			continue
		}
		l.late = 0
		s.comeBack(id)
	}
	s.expire()
}

// comeBack puts a held item back.
func (s *simulation) comeBack(id fdbpq.ID) {
	s.away = slices.DeleteFunc(s.away, func(x fdbpq.ID) bool { return x == id })
	l := s.of[id]
	switch {
	case s.strikes("lease not put back"):
		return
	case s.strikes("new place"):
		again := s.newID(id.Priority)
		s.values[again], s.of[again] = s.values[id], l
		id = again
	case l.deliveries > 0 && s.strikes("history lost"):
		s.bugs--
		l.deliveries, l.lost = 0, true
	}
	s.insert(id)
}

// passLate notices that a pop, of item i, should have got one that is late.
func (s *simulation) passLate(op *proof.Operation, i int) {
	for _, id := range s.away {
		before := compare(id, s.items[i]) < 0
		if s.of[id].late > 0 && s.of[id].until+1 < op.Call/unit && before == (op.Kind != proof.PopMax && op.Kind != proof.LeaseMax) {
			s.bugs++
		}
	}
}

func compare(a, b fdbpq.ID) int {
	return slices.Compare([]int64{a.Priority, a.Count}, []int64{b.Priority, b.Count})
}

// lease leases an item.
func (s *simulation) lease(op *proof.Operation) {
	op.Wait = unit * simulatedWait
	back := op.Kind == proof.LeaseMax
	for _, id := range s.away { // one that should still be away
		l, bug := s.of[id], "lease over early"
		if l.delayed {
			bug = "delay over early"
		}
		if l.until*unit > op.Return+2*unit && l.late == 0 && s.strikes(bug) {
			s.away = slices.DeleteFunc(s.away, func(x fdbpq.ID) bool { return x == id })
			s.give(op, id)
			return
		}
	}
	if len(s.items) == 0 {
		op.Outcome = proof.Empty
		return
	}
	i := 0
	if back {
		i = len(s.items) - 1
	}
	s.passLate(op, i)
	id := s.items[i]
	s.items = slices.Delete(s.items, i, i+1)
	if !s.clear && s.random.IntN(20) == 0 && s.unanswered < 3 {
		s.unanswered++
		op.Outcome = proof.Lost
	}
	s.give(op, id)
}

// give leases the item.
func (s *simulation) give(op *proof.Operation, id fdbpq.ID) {
	l := s.of[id]
	if l == nil {
		l = &leased{}
		s.of[id] = l
	}
	if l.fence == 0 || !s.strikes("one fence twice") {
		l.fence++
	}
	l.deliveries++
	l.until, l.delayed = s.now+simulatedWait, false
	s.away = append(s.away, id)
	if op.Outcome != proof.Done {
		return
	}
	if l.lost {
		l.lost = false
		s.bugs++
	}
	until := unit * l.until
	if s.strikes("wrong end of the lease") {
		until += 100 * unit
	}
	op.Items = []proof.Item{{Value: s.values[id], ID: id.String(), Fence: l.fence, Deliveries: l.deliveries, Until: until}}
	s.tokens = append(s.tokens, &proof.Operation{ID: id.String(), Value: s.values[id], Fence: l.fence, Wait: op.Wait})
}

// use uses a token: often the newest, sometimes an old one.
func (s *simulation) use(op *proof.Operation) {
	if len(s.tokens) == 0 {
		op.Kind = proof.Len
		op.Len = int64(len(s.items))
		return
	}
	token := s.tokens[s.random.IntN(len(s.tokens))]
	if s.random.IntN(2) == 0 {
		token = s.tokens[len(s.tokens)-1]
	}
	op.ID, op.Value, op.Fence, op.Wait = token.ID, token.Value, token.Fence, token.Wait
	switch x := s.random.IntN(10); {
	case x < 4:
		op.Kind = proof.Ack
	case x < 8:
		op.Kind, op.Snooze = proof.Nak, s.random.IntN(2) == 0
		if s.random.IntN(3) > 0 {
			op.Delay = 80 * unit
		}
	default:
		op.Kind = proof.Extend
	}
	if op.Kind == proof.Ack && s.random.IntN(3) > 0 {
		s.ackSeveral(op)
		return
	}
	id, _ := fdbpq.ParseID(op.ID)
	there := s.isThere(id)
	l := s.of[id]
	switch {
	case there && op.Fence < l.fence && s.strikes("fence ignored"):
	case there && op.Fence == l.fence-1 && s.strikes("token after nak"):
	case there && op.Fence == l.fence && s.strikes("false stale"):
		op.Outcome = proof.Stale
		return
	case !there || op.Fence != l.fence:
		op.Outcome = proof.Stale
		return
	}
	if !s.clear && s.random.IntN(20) == 0 {
		op.Outcome = proof.Unknown
		if s.random.IntN(2) == 0 {
			return
		}
	}
	s.settle(op, id, l)
}

func (s *simulation) isThere(id fdbpq.ID) bool {
	return slices.Contains(s.items, id) || slices.Contains(s.away, id)
}

// ackSeveral acknowledges other leases as well, all or none.
func (s *simulation) ackSeveral(op *proof.Operation) {
	all := op.Leases()
	holds := func(item proof.Item) bool {
		id, _ := fdbpq.ParseID(item.ID)
		return s.isThere(id) && item.Fence == s.of[id].fence
	}
	for _, n := range s.random.Perm(len(s.tokens)) {
		token := s.tokens[n]
		item := proof.Item{Value: token.Value, ID: token.ID, Fence: token.Fence}
		again := slices.ContainsFunc(all, func(i proof.Item) bool { return i.ID == item.ID })
		if !again && len(all) < 4 && (holds(item) || s.random.IntN(8) == 0) {
			all = append(all, item)
		}
	}
	op.Also = all[1:]
	var lost, held []int
	for n, item := range all {
		if holds(item) {
			held = append(held, n)
		} else {
			lost = append(lost, n)
		}
	}
	settle := func(numbers []int) {
		for _, n := range numbers {
			id, _ := fdbpq.ParseID(all[n].ID)
			s.settle(op, id, s.of[id])
		}
	}
	switch some := len(lost) > 0 && len(held) > 0; {
	case some && s.strikes("wrong ones said to be lost"):
		op.Outcome, op.Lost = proof.Stale, held
		return
	case some && s.strikes("some acknowledged"):
		settle(held)
		return
	case some && s.strikes("some acknowledged, refused"):
		settle(held)
		fallthrough
	case len(lost) > 0:
		op.Outcome, op.Lost = proof.Stale, lost
		return
	case len(held) > 1 && s.strikes("half acknowledged"):
		held = held[1:]
	}
	if !s.clear && s.random.IntN(20) == 0 {
		op.Outcome = proof.Unknown
		if s.random.IntN(2) == 0 {
			return
		}
	}
	settle(held)
}

// settle does what a token is used for.
func (s *simulation) settle(op *proof.Operation, id fdbpq.ID, l *leased) {
	if i := slices.Index(s.away, id); i >= 0 {
		s.away = slices.Delete(s.away, i, i+1)
	} else if i := slices.Index(s.items, id); i >= 0 {
		s.items = slices.Delete(s.items, i, i+1)
	}
	l.late = 0
	switch op.Kind {
	case proof.Ack:
		if s.strikes("ack removes nothing") {
			s.away = append(s.away, id)
		}
	case proof.Extend:
		l.until, l.delayed = s.now+simulatedWait, false
		op.Until = unit * l.until
		s.away = append(s.away, id)
	case proof.Nak:
		l.fence++
		if op.Snooze {
			l.deliveries--
		}
		if op.Delay > 0 {
			l.until, l.delayed = s.now+op.Delay/unit, true
			s.away = append(s.away, id)
			return
		}
		s.insert(id)
		if s.strikes("given back twice") {
			s.insert(id)
		}
	}
}
