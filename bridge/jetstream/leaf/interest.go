package leaf

import (
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server/gsl"
)

// What a subscription takes besides its text, measured: a name in a map, and everything else at most,
// as others may share its first tokens, in gsl's tree.
const (
	nameMemory  = 64
	entryMemory = 450
	tokenMemory = 360
)

// interest is what others subscribe to at the server, as LS+ and LS- tell. Subscriptions that there
// is no room for are only counted, and while there are any, every subject counts as subscribed to.
type interest struct {
	limit int

	mu     sync.RWMutex
	names  map[string]struct{}         // without wildcards or groups: most inboxes
	tree   *gsl.GenericSublist[string] // all else, with the queue group or ""
	memory int
	groups int // subscriptions with a queue group
	missed int
}

func newInterest(limit int) *interest {
	return &interest{limit: limit, names: map[string]struct{}{}, tree: gsl.NewSublist[string]()}
}

func isName(subject, queue string) bool { return queue == "" && !strings.ContainsAny(subject, "*>") }

func memoryOf(subject, queue string) int {
	if isName(subject, queue) {
		return nameMemory + len(subject)
	}
	return entryMemory + len(subject) + len(queue) + tokenMemory*(1+strings.Count(subject, "."))
}

// add reports whether the table is full now, and was not before.
func (t *interest) add(subject, queue string) (full bool) {
	if !valid(subject, true) { // which the tree would keep in part
		return false
	}
	subject, queue = strings.Clone(subject), strings.Clone(queue) // the line may be far longer
	t.mu.Lock()
	defer t.mu.Unlock()

	t.drop(subject, queue) // a group is told again with another weight
	if t.memory+memoryOf(subject, queue) > t.limit {
		t.missed++
		return t.missed == 1
	}
	t.memory += memoryOf(subject, queue)
	if queue != "" {
		t.groups++
	}
	if isName(subject, queue) {
		t.names[subject] = struct{}{}
	} else {
		_ = t.tree.Insert(subject, queue) // fails only if the subject is not valid
	}
	return false
}

// drop reports whether a subscription was there.
func (t *interest) drop(subject, queue string) bool {
	_, known := t.names[subject]
	if isName(subject, queue) {
		delete(t.names, subject)
	} else {
		known = t.tree.Remove(subject, queue) == nil
	}
	if known {
		t.memory -= memoryOf(subject, queue)
	}
	if known && queue != "" {
		t.groups--
	}
	return known
}

// remove reports whether nobody subscribes to the subject any more. That is not known of those that one
// with wildcards matches.
func (t *interest) remove(subject, queue string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.drop(subject, queue) {
		t.missed = max(t.missed-1, 0)
		return false
	}
	return isName(subject, "") && !t.match(subject)
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

// groupsOf returns the queue groups that subscribe to a subject. A server hands a leaf node's
// message to those groups that it names, and to no others.
func (t *interest) groupsOf(subject string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.groups == 0 {
		return nil
	}
	var names []string
	t.tree.Match(subject, func(queue string) {
		if queue != "" {
			names = append(names, queue)
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}
