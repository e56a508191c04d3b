package fdbpq

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// Errors of this package. Errors of the store, from package kv, pass through unchanged.
var (
	// ErrEmpty is returned by pops, leases and peeks that find no item.
	ErrEmpty = codec.ErrEmpty

	// ErrPaused is returned by pops and leases of a queue that is paused, see Settings.PauseUntil.
	// It comes wrapped together with ErrEmpty.
	ErrPaused = codec.ErrPaused

	// ErrRate is returned, as a RateError, by pops and leases of a queue that has used up
	// Settings.Rate. It comes wrapped together with ErrEmpty.
	ErrRate = errors.New("fdbpq: the queue's rate is used up")

	// ErrGroupLimits is returned by pops and leases if there are items, but none of a group that
	// may be served now: see Settings.MaxLeasedPerGroup, RatePerGroup and PausedGroups. It comes as
	// a GroupLimitsError, wrapped together with ErrEmpty.
	ErrGroupLimits = errors.New("fdbpq: nothing may be served now")

	// ErrManyGroups is returned by pops and leases if a transaction does not suffice to find out
	// which item is the next one that may be served. Nobody got a later item. It depends on how
	// many groups there are and how fast the store is, so it makes sense to try again later.
	ErrManyGroups = errors.New("fdbpq: not yet: the queue has so many groups that the next item " +
		"that may be served was not found in time: try again")

	// ErrMaxLeased is returned by leases of a queue that has Settings.MaxLeased items leased.
	ErrMaxLeased = errors.New("fdbpq: as many items are leased as max_leased allows")

	// ErrFull is returned by pushes that would leave more in the queue than Settings.MaxItems or
	// Settings.MaxBytes allows, and that fit into an empty queue.
	ErrFull = codec.ErrFull

	// ErrFullBytes is an ErrFull, of pushes that would leave more bytes in the queue than
	// Settings.MaxBytes allows.
	ErrFullBytes = codec.ErrFullBytes

	// ErrMessageTooLarge is returned by pushes of a message over MaxMessageSize, and of a chain
	// that is too large for one transaction. Settings.MaxBytes and Settings.MaxItems lower these
	// limits: what exceeds one of them would not even fit into an empty queue.
	ErrMessageTooLarge = errors.New("fdbpq: the message is too large")

	// ErrKeyspace is returned by NewKeyspace for roots that would mix keys of two kinds.
	ErrKeyspace = codec.ErrKeyspace

	// ErrQueueName is returned for names that are not 1 to MaxQueueName bytes long.
	ErrQueueName = codec.ErrQueueName

	// ErrID is returned by ParseID for text that is not an id.
	ErrID = codec.ErrID

	// ErrToken is returned by ParseToken for text that is not a token.
	ErrToken = codec.ErrToken

	// ErrLeaseLost is returned for a token whose lease is over and whose item is settled or was
	// delivered again.
	ErrLeaseLost = errors.New("fdbpq: the lease is lost or the item is settled")

	// ErrDone is returned for a job that was acknowledged and is kept: by OpMove, OpRelease and
	// OpRank, and wrapped together with ErrLeaseLost for the token that acknowledged it.
	ErrDone = errors.New("fdbpq: the job is done")

	// ErrNoValue is returned by OpRedriveItem for a finished job whose value is not kept.
	ErrNoValue = errors.New("fdbpq: the job is done, and its value was too large to keep it too")

	// ErrItemTooLarge is returned by operations that would return or move an item that is too large
	// for them. It comes as ErrMaxBytes, or with ErrNoRoom. It comes alone from leases of an item
	// that another program wrote, with a value so long that no record fits beside it.
	ErrItemTooLarge = codec.ErrItemTooLarge

	// ErrMaxBytes is an ErrItemTooLarge, of pops and leases whose item exceeds Op.MaxBytes.
	ErrMaxBytes = fmt.Errorf("%w: it exceeds max_bytes", ErrItemTooLarge)

	// ErrNoRoom is returned by operations that one transaction had no room for. What the
	// transaction has done helps the next one, so commit it and try again. It comes wrapped
	// together with what is known so far:
	//
	//   - ErrItemTooLarge: the item had no room beside the other operations;
	//   - ErrEmpty: a pop or peek has found nothing so far, but more is coming back;
	//   - ErrMaxLeased, ErrFull: leases that are over, or items that have expired, still count;
	//   - nothing: a pop or peek has met an expired item, behind which there may be others; an
	//     OpPush has a unique key whose item may have expired; or an OpSetSchedule, while times of
	//     the schedule are still due.
	ErrNoRoom = codec.ErrNoRoom

	// ErrNoRoomForItem is the ErrNoRoom of an item that has no room beside other operations. It is
	// an ErrItemTooLarge too.
	ErrNoRoomForItem = state.ErrNoRoom

	// ErrExists is returned by OpRestore for an item that is in the queue.
	ErrExists = codec.ErrExists

	// ErrNotFound is returned for an id of an item that is not in the queue.
	ErrNotFound = codec.ErrNotFound

	// ErrLeased is returned by OpMove and OpRedriveItem for an item that is leased.
	ErrLeased = errors.New("fdbpq: the item is leased")

	// ErrNotLeased is returned by OpRelease for an item that is not leased.
	ErrNotLeased = errors.New("fdbpq: the item is not leased")

	// ErrNotDeadLetter is returned by OpRedriveItem for an item that is not a dead letter, or that
	// does not say which queue it came from.
	ErrNotDeadLetter = errors.New("fdbpq: the item is not a dead letter")

	// ErrJoined is returned by pushes of a member whose joiner does not wait, or not any more.
	ErrJoined = errors.New("fdbpq: no such job waits for others")

	// ErrJoins is returned by OpMove for a joiner that waits. OpPurge returns it, and changes
	// nothing, if items of the queue are members of too many joins for a transaction, some 7,000.
	ErrJoins = codec.ErrJoins

	// ErrManyRates is returned by OpPurge while 20,000 groups or more have a rate in use. To purge
	// such a queue, remove the items of each state.
	ErrManyRates = codec.ErrManyRates

	// ErrMaxRecords is returned by OpSetConsumer and OpSetSchedule for a record beyond
	// MaxConsumers, MaxSchedules or MaxScheduleBytes.
	ErrMaxRecords = errors.New("fdbpq: the queue has as many as it can have")

	// ErrNoSource is returned by OpSetSource for a queue without Settings.Source.
	ErrNoSource = errors.New("fdbpq: the queue has no source")

	// ErrSettings is returned by OpConfigure for settings that the queue cannot have.
	ErrSettings = codec.ErrSettings

	// ErrOp is returned for an operation that the queue does not support.
	ErrOp = codec.ErrOp

	// ErrCorrupt is returned for stored data that this version of the package cannot decode. It is
	// neither changed nor removed.
	ErrCorrupt = codec.ErrCorrupt

	// ErrUnfinished is returned for a store to which a migration has begun and not ended. It must
	// not be served.
	ErrUnfinished = codec.ErrUnfinished

	// ErrStoreVersion is returned by OpenStore for a store that a version of this package with
	// another layout made: a newer one, or one from before 0.1.0.
	ErrStoreVersion = codec.ErrStoreVersion
)

// LostLeases is the ErrLeaseLost of a chain of acknowledgements. None of them was done.
type LostLeases struct {
	// Lost says which of them have lost their leases, counted from 0 and ascending.
	Lost []int
	// Done says which of the lost ones have acknowledged their jobs before, ascending.
	Done []int
	// Of is how many the chain has.
	Of int
}

// Error implements error.
func (e *LostLeases) Error() string {
	const text = "%v: %d of %d leases, the first is number %d, counted from 0: nothing was changed"
	return fmt.Sprintf(text, ErrLeaseLost, len(e.Lost), e.Of, e.Lost[0])
}

// Unwrap returns ErrLeaseLost, and ErrDone if all jobs of the chain are done.
func (e *LostLeases) Unwrap() []error {
	if len(e.Done) == e.Of {
		return []error{ErrLeaseLost, ErrDone}
	}
	return []error{ErrLeaseLost}
}

// RateError is the error of pops and leases of a queue that has used up Settings.Rate.
type RateError struct {
	Rate  string    // as the settings have it
	Until time.Time // when the next item may be delivered
}

// Error implements error.
func (e *RateError) Error() string {
	until := e.Until.UTC().Format(time.RFC3339Nano)
	return fmt.Sprintf("fdbpq: the queue's rate of %s is used up until %s", e.Rate, until)
}

// Unwrap returns ErrRate and ErrEmpty.
func (e *RateError) Unwrap() []error { return []error{ErrRate, ErrEmpty} }

// GroupLimitsError is the error of pops and leases that find no item of a group that may be served.
type GroupLimitsError struct {
	MaxLeasedPerGroup int64  // as the settings have it
	RatePerGroup      string // the same
	Paused            bool   // some groups are paused
}

// Error implements error.
func (e *GroupLimitsError) Error() string {
	var reasons []string
	if e.MaxLeasedPerGroup > 0 {
		const text = "have max_leased_per_group %d leased"
		reasons = append(reasons, fmt.Sprintf(text, e.MaxLeasedPerGroup))
	}
	if e.RatePerGroup != "" {
		reasons = append(reasons, "have used up rate_per_group "+e.RatePerGroup)
	}
	if e.Paused {
		reasons = append(reasons, "are paused")
	}
	const text = "%v: the groups of the ready items %s"
	return fmt.Sprintf(text, ErrGroupLimits, strings.Join(reasons, " or "))
}

// Unwrap returns ErrGroupLimits and ErrEmpty.
func (e *GroupLimitsError) Unwrap() []error { return []error{ErrGroupLimits, ErrEmpty} }

// badOp is an ErrOp with its reason.
func badOp(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrOp}, args...)...)
}

func notFound(id *ID) error { return fmt.Errorf("%w: %s", ErrNotFound, id) }

// notYet completes an error with ErrNoRoom: the next transaction may succeed.
func notYet(err error) error { return fmt.Errorf("%w, so far: %w", err, ErrNoRoom) }
