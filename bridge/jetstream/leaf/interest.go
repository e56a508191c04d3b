package leaf

import (
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server/gsl"
)

// What a subscription takes besides its text, measured: a name in a map, and one with wildcards at
// most, as others may share its first tokens, in gsl's tree.
const (
	nameMemory  = 64
	entryMemory = 450
	tokenMemory = 360
)

// interest is what others subscribe to at the server, as LS+ and LS- tell, but for queue groups.
// Subscriptions that there is no room for are only counted, and while there are any, every subject
// counts as subscribed to.
type interest struct {
	limit int

	mu     sync.RWMutex
	names  map[string]struct{} // without wildcards: most inboxes
	tree   *gsl.SimpleSublist  // all else
	memory int
	missed int
}

func newInterest(limit int) *interest {
	return &interest{limit: limit, names: map[string]struct{}{}, tree: gsl.NewSimpleSublist()}
}

func isName(subject string) bool { return !strings.ContainsAny(subject, "*>") }

func memoryOf(subject string) int {
	if isName(subject) {
		return nameMemory + len(subject)
	}
	return entryMemory + len(subject) + tokenMemory*(1+strings.Count(subject, "."))
}

func (t *interest) add(subject string) {
	if !valid(subject, true) { // which the tree would keep in part
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

// remove reports whether nobody subscribes to the subject any more. That is not known of those that one
// with wildcards matches.
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
