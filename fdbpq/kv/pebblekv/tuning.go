package pebblekv

import (
	"time"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// gapIndexSize bounds the gap index, in bytes.
	gapIndexSize = 16 << 20

	// maxMemTables: a writer waits while more memtables are in memory.
	maxMemTables = 4

	// baseLevelSize is where Pebble begins another level, in bytes. Items are short-lived, so a
	// store has few levels. Each is another place to search, and to copy to.
	baseLevelSize = 256 << 20

	// blockSize is how much of a table is read at once, in bytes. Items are read one after the
	// other, so Pebble's 4 KiB would be small. The index of a table is one block.
	blockSize      = 16 << 10
	indexBlockSize = 256 << 10

	// usualMemTables is how many memtables a store in use has: one for the writes, one being
	// flushed or kept for later. Pebble charges memtables to the cache.
	usualMemTables = 2

	// flushDelay is how long a cleared range, such as a purged queue, stays in the memtable at
	// most. Only then its space is given back. Under load the memtable is full sooner.
	flushDelay = time.Minute

	// never disables a threshold of Pebble's.
	never = 1 << 20
)

// tuned are Pebble's options for many small, short-lived items on a machine with few cores and
// little memory.
func (o Options) tuned(lock *pebble.Lock, s *openedStore) *pebble.Options {
	p := &pebble.Options{
		FS:            s.disk,
		Lock:          lock,
		CacheSize:     o.CacheSize + usualMemTables*o.MemTableSize,
		MemTableSize:  uint64(o.MemTableSize),
		EventListener: s.events(),
		Logger:        pebbleLogger{o.Logger, s.disk.fail},
		LBaseMaxBytes: baseLevelSize,

		FlushDelayDeleteRange: flushDelay,

		// Fixed, because a store cannot go back to an older format.
		FormatMajorVersion: pebble.FormatValueSeparation,

		// Writers wait in waitRoom instead.
		MemTableStopWritesThreshold: never,
		L0StopWritesThreshold:       never,

		// One compaction at a time leaves the other cores to the queues.
		CompactionConcurrencyRange: func() (lower, upper int) { return 1, 1 },
	}

	// The processor is the bottleneck. Blocks share the common prefixes of their keys, which saves
	// most of what compression would.
	p.ApplyCompressionSettings(func() pebble.DBCompressionSettings {
		return pebble.DBCompressionNone
	})

	for i := range p.Levels {
		p.Levels[i].BlockSize = blockSize
		p.Levels[i].IndexBlockSize = indexBlockSize
	}

	// Reads request no compactions. Those worth doing are found without that.
	p.Experimental.ReadSamplingMultiplier = -1

	// One compaction at a time: nothing has to be granted between two of them, so that Pebble's
	// usual scheduler, with a ticker, is not needed.
	p.Experimental.CompactionScheduler = &scheduler{
		pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest(), s.background,
	}
	return p
}

// events are what the store learns from Pebble.
func (s *openedStore) events() *pebble.EventListener {
	replaced := func() {
		signal(s.syncer.replaced)
		signal(s.room)
	}
	return &pebble.EventListener{
		BackgroundError: s.background.note,
		DataCorruption:  func(i pebble.DataCorruptionInfo) { s.damage.note(i.Path, i.Details) },
		WALCreated:      func(pebble.WALCreateInfo) { s.rotated.Store(true) },
		FlushEnd:        func(pebble.FlushInfo) { replaced() },
		CompactionEnd: func(i pebble.CompactionInfo) {
			s.background.failing.Store(i.Err != nil)
			replaced()
		},
	}
}

// signal puts an element into a channel of capacity one, unless it has one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
