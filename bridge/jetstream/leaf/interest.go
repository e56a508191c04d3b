package leaf

import (
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server/gsl"
)

// Bytes that a subscription takes besides its text, measured: a name in the map, and an entry with
// its tokens in gsl's tree. That is an upper limit, because entries may share their first tokens.
const (
	nameMemory  = 64
	entryMemory = 450
	tokenMemory = 360
)

// interest is what others subscribe to at the server, as LS+ and LS- tell, without queue groups. It
// only counts subscriptions that it has no room for. While there are any, every subject counts as
// subscribed to.
type interest struct {
	limit int // bytes

	mu     sync.RWMutex
	names  map[string]struct{} // subscriptions without wildcards: most inboxes
	tree   *gsl.SimpleSublist  // all others
	memory int                 // bytes
	missed int                 // subscriptions without room
}

func newInterest(limit int) *interest {
	return &interest{limit: limit, names: map[string]struct{}{}, tree: gsl.NewSimpleSublist()}
}

func isName(subject string) bool { return !strings.ContainsAny(subject, "*>") }

// memoryOf returns how many bytes a subscription takes.
func memoryOf(subject string) int {
	if isName(subject) {
		return nameMemory + len(subject)
	}
	return entryMemory + len(subject) + tokenMemory*(1+strings.Count(subject, "."))
}

func (t *interest) add(subject string) {
	if !valid(subject, true) { // the tree would keep part of it
		return
	}

	subject = strings.Clone(subject) // the line may be far longer
	t.mu.Lock()
	defer t.mu.Unlock()

	t.drop(subject)
	if t.memory+memoryOf(subject) > t.limit {
		t.missed++
		return
	}

	t.memory += memoryOf(subject)
	if isName(subject) {
		t.names[subject] = struct{}{}
	} else {
		_ = t.tree.Insert(subject, struct{}{}) // fails only if the subject is not valid
	}
}

// drop reports whether a subscription was there.
func (t *interest) drop(subject string) bool {
	_, known := t.names[subject]
	if isName(subject) {
		delete(t.names, subject)
	} else {
		known = t.tree.Remove(subject, struct{}{}) == nil
	}
	if known {
		t.memory -= memoryOf(subject)
	}
	return known
}

// remove removes a subscription. It reports whether it is certain that nobody subscribes to the
// subject any more, which it never is for one with wildcards.
func (t *interest) remove(subject string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	if !t.drop(subject) {
		t.missed = max(t.missed-1, 0)
		return false
	}

	return isName(subject) && !t.match(subject)
}

// has reports whether somebody subscribes to a subject.
func (t *interest) has(subject string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.match(subject)
}

func (t *interest) match(subject string) bool {
	_, known := t.names[subject]
	return known || t.missed > 0 || t.tree.HasInterest(subject)
}
