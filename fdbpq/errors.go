package fdbpq

import "github.com/pqbridge/pqbridge/fdbpq/internal/codec"

// Errors of this package. Errors of the store, which are those of package kv, pass through
// unchanged.
var (
	// ErrEmpty is returned by pops, leases and peeks that find no item.
	ErrEmpty = codec.ErrEmpty

	// ErrPaused is returned by pops and leases of a queue that is paused, see Settings.PauseUntil.
	// It comes wrapped together with ErrEmpty.
	ErrPaused = codec.ErrPaused

	// ErrRate is returned by pops and leases of a queue that has used up Settings.Rate, as a RateError.
	// It comes wrapped together with ErrEmpty.
	ErrRate = codec.ErrRate

	// ErrGroupLimits is returned by pops and leases if there are items, but none of a group that may
	// be served now: see Settings.MaxLeasedPerGroup and Settings.RatePerGroup. It comes as a
	// GroupLimitsError, wrapped together with ErrEmpty.
	ErrGroupLimits = codec.ErrGroupLimits

	// ErrMaxLeased is returned by leases while as many items are leased as Settings.MaxLeased
	// allows.
	ErrMaxLeased = codec.ErrMaxLeased

	// ErrFull is returned by pushes that would leave more in the queue than Settings.MaxItems or
	// Settings.MaxBytes allows.
	ErrFull = codec.ErrFull

	// ErrFullBytes is an ErrFull, of pushes that would leave more bytes in the queue than
	// Settings.MaxBytes allows.
	ErrFullBytes = codec.ErrFullBytes

	// ErrMessageTooLarge is returned by pushes of a message over MaxMessageSize, and of a group
	// that is too large for one transaction.
	ErrMessageTooLarge = codec.ErrMessageTooLarge

	// ErrKeyspace is returned by NewKeyspace for roots with which keys of two kinds would mix.
	ErrKeyspace = codec.ErrKeyspace

	// ErrQueueName is returned for names that are not 1 to MaxQueueName bytes long.
	ErrQueueName = codec.ErrQueueName

	// ErrID is returned by ParseID for text that is not an id.
	ErrID = codec.ErrID

	// ErrToken is returned by ParseToken for text that is not a token.
	ErrToken = codec.ErrToken

	// ErrLeaseLost is returned for a token whose lease is over, when the item is settled or was
	// delivered again.
	ErrLeaseLost = codec.ErrLeaseLost

	// ErrItemTooLarge is returned by operations that would return or move an item that is too large
	// for them: as ErrMaxBytes or with ErrNoRoom, and alone by leases of an item that another
	// program wrote with a value so long that no record fits beside it.
	ErrItemTooLarge = codec.ErrItemTooLarge

	// ErrMaxBytes is an ErrItemTooLarge, of pops and leases whose item exceeds Op.MaxBytes.
	ErrMaxBytes = codec.ErrMaxBytes

	// ErrNoRoom is returned by operations that one transaction had no room for. What the
	// transaction has done helps the next one, so commit it and try again. It comes wrapped
	// together with what is known so far:
	//
	//   - ErrItemTooLarge, of an item that had no room beside the other operations;
	//   - ErrEmpty, of pops and peeks that have found nothing while more is to come back;
	//   - ErrMaxLeased and ErrFull, while leases that are over and items that have expired still count;
	//   - nothing, of pops and peeks that have met an expired item, behind which there may be others, and
	//     of OpSetSchedule while times of the schedule are still due.
	ErrNoRoom = codec.ErrNoRoom

	// ErrExists is returned by OpRestore for an item that is in the queue.
	ErrExists = codec.ErrExists

	// ErrNotFound is returned for an id of an item that is not in the queue.
	ErrNotFound = codec.ErrNotFound

	// ErrLeased is returned by OpMove and OpRedriveItem for an item that is leased.
	ErrLeased = codec.ErrLeased

	// ErrNotLeased is returned by OpRelease for an item that is not leased.
	ErrNotLeased = codec.ErrNotLeased

	// ErrNotDeadLetter is returned by OpRedriveItem for an item that is no dead letter, or of which
	// nothing says in which queue it was.
	ErrNotDeadLetter = codec.ErrNotDeadLetter

	// ErrManyRates is returned by OpPurge while 20,000 groups or more have a rate in use. To purge such
	// a queue, remove the items of each state.
	ErrManyRates = codec.ErrManyRates

	// ErrMaxRecords is returned by OpSetConsumer and OpSetSchedule for one more than MaxConsumers or
	// MaxSchedules, or more than MaxScheduleBytes.
	ErrMaxRecords = codec.ErrMaxRecords

	// ErrNoSource is returned by OpSetSource for a queue without Settings.Source.
	ErrNoSource = codec.ErrNoSource

	// ErrSettings is returned by OpConfigure for settings that the queue cannot have.
	ErrSettings = codec.ErrSettings

	// ErrOp is returned for an operation that the queue does not support.
	ErrOp = codec.ErrOp

	// ErrCorrupt is returned for stored data that this version of the package cannot decode. It is
	// neither changed nor removed.
	ErrCorrupt = codec.ErrCorrupt

	// ErrUnfinished is returned for a store to which a migration has begun and not
	// ended. Nothing may serve it.
	ErrUnfinished = codec.ErrUnfinished

	// ErrStoreVersion is returned by OpenStore for a store that a newer version of this package
	// made.
	ErrStoreVersion = codec.ErrStoreVersion
)
