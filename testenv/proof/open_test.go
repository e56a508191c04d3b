package proof_test

import (
	"sync"

	"github.com/pqbridge/pqbridge/testenv/proof"
)

// openPops counts the items that pops and leases of unknown outcome may have taken from
// each queue.
type openPops struct {
	mu    sync.Mutex
	count map[string]int
}

func (o *openPops) add(queue string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count[queue] += n
}

// reserve counts items that requests ask for before their outcomes are known, unless that would be
// too many.
func (o *openPops) reserve(asked map[string]int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()

	for queue, n := range asked {
		if o.count[queue]+n > proof.MaxOpen/2 {
			return false
		}
	}

	for queue, n := range asked {
		o.count[queue] += n
	}

	return true
}

// many reports whether a history should not have more.
func (o *openPops) many(queue string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count[queue] >= proof.MaxOpen/4
}
