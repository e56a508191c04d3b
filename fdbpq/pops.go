package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// queuePops is the pops and leases of one queue, which run in their order, from whichever ends.
// Each finds the next item that may be served, checks whether the operation can have it, and takes
// it.
type queuePops struct {
	familyOps
	ends   state.Ends
	sides  [2]side // by End
	limits popLimits
	served state.Served

	share   int                      // of what is read at once, in bytes
	past    kv.Future[[]kv.KeyValue] // the first history of an item, if there is any
	later   kv.Future[[]kv.KeyValue] // what falls due next; nil unless an operation has Waits
	ready   kv.Future[[]byte]        // how many items are ready; nil unless an operation has Count
	nextDue time.Time                // of the leases that were given
}

// side is the items of a queue from one of its ends. Pops walk them in order until a search begins,
// which finds only items of groups that may be served.
type side struct {
	*queuePops
	end     End
	want    int     // how many items are still wanted
	search  *search // nil while the walk goes on
	walksOn bool    // for bounds.passedOn
}

// search finds the items of groups that may be served, in order, behind the items that a walk has
// passed over. It never reads the items of other groups between them. It reads ahead without
// conflict, and conflicts with pushes to a group up to the last item of the group that it has
// looked at.
//
// Nothing may come between its reads, so it looks at all groups in one transaction, page by page,
// or fails with ErrManyGroups. It never takes a part of the groups for all of them.
type search struct {
	*side
	after     []byte   // the key in ("i") that it starts behind
	others    kv.Range // the rest of the index of groups, behind those that it has looked at
	heads     []*head  // of groups that may be served, in the order of their items
	beyond    *head    // the first of those that are not in heads any more; nil if all are
	perGroup  int      // how many items of a group are read at once
	looks     int      // how often it has looked at searchedAtOnce groups
	conflicts int      // their bytes
}

// head is the next item of a group.
type head struct {
	hash codec.GroupHash
	rest kv.Range      // the keys of the group after this item
	rows []kv.KeyValue // the first of these, as far as they are read

	id    ID
	value kv.Future[[]byte] // nil unless the item is being read
	item  *state.ItemRead   // valid if value is set; has its Pair.Key once next has returned it
	taken bool              // the search goes on to the item after it
}
