package proof_test

import (
	"hash/fnv"
	"math/rand/v2"

	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

// limits are the limits of bridges; 0 is the default. In most systems they are so low that items
// often find no room in a transaction beside others, and that batches of requests are split. With
// the default, that takes 9 MB.
type limits struct {
	LeaseRoom, MaxBatchBytes, Lanes int
}

// tighten lowers the limits of most systems, to a room between the given ones. In one lane,
// requests of all queues share transactions.
func (r *rig) tighten(least, most int) {
	name := fnv.New64()
	_, _ = name.Write([]byte(r.name))
	random := rand.New(rand.NewPCG(r.seed, name.Sum64())) // not the same for all systems

	if random.IntN(4) == 0 {
		return
	}

	r.limits.LeaseRoom = least + random.IntN(most-least)
	if random.IntN(4) == 0 {
		r.limits.MaxBatchBytes = r.limits.LeaseRoom/2 + random.IntN(4*r.limits.LeaseRoom)
	}

	r.limits.Lanes = random.IntN(2)
	r.t.Logf("room for leases %d bytes, %d for batches (0: as ever)",
		r.limits.LeaseRoom, r.limits.MaxBatchBytes)
}

func (l *limits) tight() bool { return l.LeaseRoom > 0 }

// largePadding returns a size: half of the items are small, and one in a hundred has more than one
// key.
func largePadding(random *rand.Rand) int {
	switch x := random.IntN(100); {
	case x < 45:
		return random.IntN(100)
	case x < 80:
		return 1_000 + random.IntN(10_000)
	case x < 99:
		return 10_000 + random.IntN(30_000)
	default:
		return 60_000 + random.IntN(80_000)
	}
}

// limitBytes has some pops and leases limit the bytes that they get: with a limit that only small
// items have room for, or one for several large ones.
func (w *workload) limitBytes(op *books.Operation) {
	switch w.random.IntN(12) {
	case 0:
		op.MaxBytes = 1 + w.random.Int64N(500)
	case 1:
		op.MaxBytes = 1 + w.random.Int64N(80_000)
	}
}

// padding returns a size: mostly small, sometimes more than fits into one key. If transactions have
// little room, many do not fit into one together.
func (w *workload) padding() int {
	if w.tight {
		return largePadding(w.random)
	}

	if w.random.IntN(50) == 0 {
		return 60_000 + w.random.IntN(200_000)
	}

	return w.random.IntN(100)
}
