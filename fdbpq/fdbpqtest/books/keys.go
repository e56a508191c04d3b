package books

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
)

// keys has the items with unique keys. Unlike the rest of the books, it keeps all of them to the
// end, because it takes two operations to see that a key was used twice.
type keys struct {
	mu         sync.Mutex
	items      map[string]*uniqueItem // by value
	duplicates []Operation
	// takes has by queue the items that pops of unknown outcome may have taken, and so freed their
	// keys for a while, mayHold whether leases of unknown outcome may hold items that have expired.
	takes   map[string]int64
	mayHold map[string]bool
	without int64 // sightings of items that have lost their keys
}

// uniqueItem is an item with a unique key. Times are in nanoseconds.
type uniqueItem struct {
	value, key, id string
	pushed         bool // its push was acknowledged
	call, answered int64
	there          int64 // until then at least it was there
	gone           int64 // from then on it cannot have been there
	expires        int64 // at the latest; 0 if it never does
	held           bool  // it was leased, so its holder may keep it
}

// take records that a pop or lease of unknown outcome may have taken n items.
func (k *keys) take(op *Operation, n int64) {
	if n == 0 {
		return
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	if op.Kind.Pops() {
		k.takes[op.Queue] += n
	} else {
		k.mayHold[op.Queue] = true
	}
}

func (i *uniqueItem) queue() string {
	queue, _, _ := strings.Cut(i.key, " ")
	return queue
}

func keyOf(op *Operation) string { return op.Queue + " " + op.Unique }

// announce records a push that is about to be sent.
func (k *keys) announce(op *Operation) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := &uniqueItem{value: op.Value, key: keyOf(op), call: op.Call, gone: math.MaxInt64}
	k.items[op.Value] = i
}

// push records the outcome of a push.
func (k *keys) push(op *Operation, tolerance int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.items[op.Value]
	switch {
	case i == nil: // another push that is not done
	case op.Outcome == Done:
		i.id, i.pushed, i.answered = op.ID, true, op.Return
		if op.TTL > 0 {
			i.expires = op.Return + op.TTL + 2e6*int64(tolerance)
		}
	case op.Outcome == Duplicate:
		k.duplicates = append(k.duplicates, *op)
		delete(k.items, op.Value)
	case op.Outcome == Refused:
		delete(k.items, op.Value)
	}
}

// out records an item that was popped or leased.
func (k *keys) out(e *entry, op *Operation, item Item) {
	if e.marks&keyed == 0 {
		return
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.items[item.Value]
	switch {
	case i == nil:
	case e.life() > 0: // without its key
		i.gone = min(i.gone, op.Return)
	case op.Queue+" "+item.Unique != i.key:
		k.without++
		i.id, i.gone = cmp.Or(item.Job, item.ID), min(i.gone, op.Return)
	default:
		i.id, i.there = cmp.Or(item.Job, item.ID), max(i.there, op.Call)
		if op.Kind.Pops() {
			i.gone = min(i.gone, op.Return)
		} else {
			i.held = true
		}
	}
}

// use records that a token counted, or that an item was removed.
func (k *keys) use(e *entry, op *Operation) {
	if e.marks&keyed == 0 || e.life() > 0 {
		return
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.items[op.Value]
	if i == nil {
		return
	}

	i.there = max(i.there, op.Call)
	if op.Kind.Acks() || op.Kind == Term || op.Kind == Remove {
		i.gone = min(i.gone, op.Return)
	}
}

// left records an item that was found in the end.
func (k *keys) left(e *entry, value string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := k.items[value]; i != nil && e.life() == 0 {
		i.there = math.MaxInt64
	}
}

// check returns how many items were there while another one with their key was, for certain, or had
// lost their keys, and how many pops can have freed a key for a while. It adds problems for pushes
// that were duplicates of nothing.
func (k *keys) check(b *Books) (overlaps, takes int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	byKey, byID := map[string][]*uniqueItem{}, map[string]*uniqueItem{}
	for _, i := range k.items {
		byKey[i.key] = append(byKey[i.key], i)
		byID[i.id] = i
		if i.expires > 0 && !i.held && !k.mayHold[i.queue()] {
			i.gone = min(i.gone, i.expires)
		}
	}

	for _, op := range k.duplicates {
		i := byID[op.ID]
		isUnseen := func(i *uniqueItem) bool { return i.id == "" }
		if i == nil && slices.ContainsFunc(byKey[keyOf(&op)], isUnseen) {
			continue
		}
		if i == nil || i.key != keyOf(&op) || i.call > op.Return || i.gone < op.Call {
			b.problem("a duplicate of an item that is not there: %s is told %s: %+v", &op, op.ID, i)
		}
	}

	queues := map[string]bool{}
	for _, items := range byKey {
		queues[items[0].queue()] = true
		items = slices.DeleteFunc(items, func(i *uniqueItem) bool { return !i.pushed })
		slices.SortFunc(items, func(x, y *uniqueItem) int {
			return cmp.Compare(x.answered, y.answered)
		})

		for n, i := range items {
			for _, later := range items[n+1:] {
				if later.answered > i.there {
					break
				}
				if later.call >= i.answered || later.there >= later.answered {
					overlaps++
				}
			}
		}
	}

	for queue := range queues {
		takes += k.takes[queue]
	}

	return overlaps + k.without, takes
}
