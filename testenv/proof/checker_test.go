package proof_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/testenv/proof"
)

const (
	// checkTime is how long the check of one queue may take.
	checkTime = time.Minute
	// searchTime is how long to look for a bug among overlapping operations. Finding
	// out that there is no order at all can take very long.
	searchTime = 500 * time.Millisecond
)

// simulation makes histories of a working queue in which operations overlap, and adds
// bugs at random.
type simulation struct {
	random *rand.Rand
	bug    string // "" for none
	bugs   int    // how often it was added
	// clear: operations do not overlap and all have an outcome, so that nothing can
	// explain a bug away.
	clear bool
	// overlap is how many units before it takes place an operation may begin, and after it end.
	overlap int64

	items      []fdbpq.ID // in order
	values     map[fdbpq.ID]string
	counts     int64
	held       []fdbpq.ID // taken by pops of unknown outcome, which can put it back
	unanswered int        // leases
	last       *proof.Operation
	h          proof.History
	leases
	expiring
}

// simulate makes a history of n operations, and what is left then.
func simulate(seed uint64, bug string, clear bool, n int) *simulation {
	s := &simulation{
		random: rand.New(rand.NewPCG(seed, 0)), bug: bug, clear: clear,
		values: map[fdbpq.ID]string{},
		leases: leases{of: map[fdbpq.ID]*leased{}}, expiring: expiring{at: map[fdbpq.ID]int64{}},
		h: proof.History{Name: "simulation", OneByOne: true},
	}
	s.overlap = 25
	if clear {
		s.overlap = 5
	}
	for i := range n {
		// Operation i takes place at 10 i; its request comes before that, and its
		// answer after.
		op := proof.Operation{Queue: "jobs", Client: i % 5, Outcome: proof.Done}
		s.now = int64(10 * i)
		op.Call, op.Return = unit*(s.now-s.random.Int64N(s.overlap)), unit*(s.now+s.random.Int64N(s.overlap))
		s.bringBack()
		s.do(i, &op)
		s.h.Operations = append(s.h.Operations, op)
	}
	s.ended = true
	for i := n; ; i++ {
		s.now = int64(1000 * i)
		op := proof.Operation{Queue: "jobs", Kind: proof.PopMin, Outcome: proof.Done, Call: unit * s.now, Return: unit*s.now + 1}
		s.bringBack()
		s.pop(&op)
		s.h.Operations = append(s.h.Operations, op)
		if op.Outcome == proof.Empty {
			return s
		}
	}
}

// strikes says whether to add the bug here.
func (s *simulation) strikes(bug string) bool {
	often := 10
	if slices.Contains(leaseBugs(), bug) || slices.Contains(expiryBugs(), bug) { // there are fewer occasions
		often = 3
	}
	if s.bug != bug || s.random.IntN(often) > 0 {
		return false
	}
	s.bugs++
	return true
}

func (s *simulation) do(i int, op *proof.Operation) {
	switch x := s.random.IntN(100); {
	case x < 34:
		op.Kind, op.Priority, op.Value = proof.Push, s.random.Int64N(3), fmt.Sprint("v", i)
		if s.random.IntN(5) == 0 {
			op.Delay = 40 * unit
		}
		// That something has expired would explain most other bugs.
		if s.random.IntN(4) == 0 && (s.bug == "" || slices.Contains(expiryBugs(), s.bug)) {
			op.TTL = (50 + s.random.Int64N(100)) * unit
		}
		s.push(op)
	case x < 44:
		op.Kind = proof.PopMin
		s.pop(op)
	case x < 51:
		op.Kind = proof.PopMax
		s.pop(op)
	case x < 61:
		op.Kind = []proof.Kind{proof.LeaseMin, proof.LeaseMax}[s.random.IntN(2)]
		s.lease(op)
	case x < 75:
		s.use(op)
	case x < 82:
		op.Kind = proof.PeekMin
		s.peek(op)
	case x < 90:
		op.Kind = proof.PeekMax
		s.peek(op)
	case x < 96:
		op.Kind, op.Len = proof.Len, int64(len(s.items))
		if len(s.away) > 0 && s.strikes("leased and counted") {
			op.Len += int64(len(s.away))
		}
		if s.strikes("wrong len") {
			op.Len += 20
		}
	default:
		s.putBack()
		op.Kind = proof.PopMin
		s.pop(op)
	}
}

func (s *simulation) push(op *proof.Operation) {
	id := s.newID(op.Priority)
	// Without another item of its priority, no place would be wrong.
	same := func(other fdbpq.ID) bool { return other.Priority == op.Priority }
	if slices.ContainsFunc(s.items, same) && s.strikes("wrong place") {
		id.Count = -s.counts
	}
	op.ID = id.String()
	s.values[id] = op.Value
	if s.strikes("refused, but done") {
		op.Outcome, op.ID = proof.Refused, ""
	}
	if s.strikes("lost push") {
		return
	}
	if op.TTL > 0 {
		s.at[id] = s.now + op.TTL/unit
	}
	if op.Delay > 0 {
		s.of[id] = &leased{until: s.now + op.Delay/unit, delayed: true}
		s.away = append(s.away, id)
	} else {
		s.insert(id)
	}
	if !s.clear && s.random.IntN(30) == 0 {
		op.Outcome, op.ID = proof.Lost, ""
	}
}

// newID returns an id that comes after all others of its priority.
func (s *simulation) newID(priority int64) fdbpq.ID {
	s.counts++
	id := fdbpq.ID{Priority: priority, Count: s.counts}
	binary.BigEndian.PutUint64(id.Random[:], uint64(s.counts))
	return id
}

func (s *simulation) insert(id fdbpq.ID) {
	s.items = append(s.items, id)
	slices.SortFunc(s.items, func(a, b fdbpq.ID) int {
		return slices.Compare([]int64{a.Priority, a.Count}, []int64{b.Priority, b.Count})
	})
}

// end returns the index of the item at the end that op is about.
func (s *simulation) end(op *proof.Operation) int {
	if op.Kind == proof.PopMax || op.Kind == proof.PeekMax {
		return len(s.items) - 1
	}
	return 0
}

// seen reports whether every pop sees the item at its end. One that has come back from somewhere may have
// done so only after the pop.
func (s *simulation) seen(op *proof.Operation) bool { return s.of[s.items[s.end(op)]] == nil }

func (s *simulation) show(op *proof.Operation, id fdbpq.ID) {
	op.ID, op.Value = id.String(), s.values[id]
}

func (s *simulation) peek(op *proof.Operation) {
	if len(s.items) == 0 {
		op.Outcome = proof.Empty
		return
	}
	s.show(op, s.items[s.end(op)])
	if s.last != nil && s.last.Value != op.Value && s.last.Return < op.Call && s.strikes("stale peek") {
		op.ID, op.Value = s.last.ID, s.last.Value
	}
}

func (s *simulation) pop(op *proof.Operation) {
	if s.missesExpiry(op); op.ID != "" {
		return
	}
	if len(s.items) == 0 || s.seen(op) && s.strikes("false empty") {
		op.Outcome = proof.Empty
		return
	}
	i := s.end(op)
	s.passLate(op, i)
	if len(s.items) > 2 && s.seen(op) && s.strikes("swapped pops") {
		i = 1
	}
	s.show(op, s.items[i])
	if s.strikes("doubled pop") {
		return
	}
	if !s.clear && len(s.held) < 3 && s.random.IntN(20) == 0 {
		op.Outcome, op.ID, op.Value = proof.Unknown, "", ""
		s.held = append(s.held, s.items[i])
	} else {
		s.last = &proof.Operation{ID: op.ID, Value: op.Value, Return: op.Return}
	}
	s.items = slices.Delete(s.items, i, i+1)
}

// putBack puts back what a pop of unknown outcome took, at its old place or behind the
// others of its priority.
func (s *simulation) putBack() {
	if len(s.held) == 0 {
		return
	}
	id := s.held[0]
	s.held = s.held[1:]
	if s.random.IntN(2) == 0 { // pushed again
		again := s.newID(id.Priority)
		s.values[again], s.at[again] = s.values[id], s.at[id]
		id = again
	}
	s.insert(id)
	s.expire()
}

// A working queue passes: always if the order is clear, and nearly always if operations
// overlap. The search for an order can then take very long, about once in 7,500 of
// these histories, but never finds a fault.
func TestCheckerAccepts(t *testing.T) {
	first := flags.firstSeed(t)
	undecided := 0
	for seed := first; seed < first+50; seed++ {
		clear := seed%2 == 0
		err := simulate(seed, "", clear, 200).h.Check(10 * searchTime)
		switch {
		case err == nil:
		case errors.Is(err, proof.ErrUndecided) && !clear:
			undecided++
			t.Logf("-seed %d: %v", seed, err)
		default:
			t.Errorf("-seed %d: %v", seed, err)
		}
	}
	if undecided > 2 {
		t.Errorf("undecided: %d of 50 histories", undecided)
	}
}

// leaseBugs are those that overlapping operations often explain: clients that got no answer
// may have moved items.
func leaseBugs() []string {
	return []string{
		"fence ignored", "new place", "history lost", "leased and counted", "ack removes nothing", "lease not put back",
		"given back twice", "lease over early", "delay over early", "lease over late", "token after nak", "false stale",
		"one fence twice", "wrong end of the lease",
		"wrong ones said to be lost", "some acknowledged", "some acknowledged, refused", "half acknowledged",
	}
}

func expiryBugs() []string { return []string{"expired and served", "expired early"} }

// Each kind of bug is found: always if nothing else can explain what was seen, and
// mostly if operations overlap.
func TestCheckerFinds(t *testing.T) {
	bugs := []string{
		"swapped pops", "lost push", "doubled pop", "stale peek", "wrong len",
		"wrong place", "false empty", "refused, but done",
	}
	for _, bug := range slices.Concat(bugs, leaseBugs(), expiryBugs()) {
		t.Run(bug, func(t *testing.T) {
			first := flags.firstSeed(t)
			for _, clear := range []bool{true, false} {
				if !clear && !slices.Contains(bugs, bug) {
					continue // other operations may explain it
				}
				struck, found, timeout := 0, 0, searchTime
				if clear {
					timeout = checkTime
				}
				for seed := first; seed < first+20; seed++ {
					s := simulate(seed, bug, clear, 200)
					if s.bugs == 0 {
						continue
					}
					struck++
					err := s.h.Check(timeout)
					if err != nil && !errors.Is(err, proof.ErrUndecided) {
						found++
					} else if clear {
						t.Errorf("-seed %d: added %d times, not found: %v", seed, s.bugs, err)
					}
				}
				t.Logf("clear %t: found in %d of %d histories", clear, found, struck)
				if struck == 0 || found*2 < struck {
					t.Error("not found")
				}
			}
		})
	}
}

// A history can be written and read again, and what is wrong with it can be looked at.
func TestHistoryFile(t *testing.T) {
	s := simulate(flags.firstSeed(t), "wrong len", true, 100)
	path := filepath.Join(t.TempDir(), "history.json")
	if err := s.h.Write(path); err != nil {
		t.Fatal(err)
	}
	h, err := proof.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Check(checkTime); (err == nil) != (s.bugs == 0) {
		t.Errorf("%d bugs were added; found: %v", s.bugs, err)
	}
	pages, err := h.Visualize(path, checkTime)
	if err != nil || (len(pages) == 0) != (s.bugs == 0) {
		t.Errorf("%d bugs were added; pages: %q, %v", s.bugs, pages, err)
	}
}

// TestFile checks the history in the file that -history names.
func TestFile(t *testing.T) {
	if flags.history == "" {
		t.Skip("checks a file: -history <path>")
	}
	h, err := proof.Read(flags.history)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Check(10 * checkTime); err != nil {
		t.Error(err)
	}
}
