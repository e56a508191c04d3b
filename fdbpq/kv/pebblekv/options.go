package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Options of a store. The zero value is ready to use.
type Options struct {
	// CacheSize is how much of the tables on disk is cached in memory, in bytes, at
	// most 1 TiB. The cache shrinks when there are more than two memtables, and
	// grows when there are fewer. 0 means DefaultCacheSize.
	CacheSize int64

	// MemTableSize is how much is collected in memory before it is flushed to a table
	// on disk, in bytes, from 1 MiB to 1 GiB. While the disk is slow up to four
	// memtables are in memory. 0 means DefaultMemTableSize.
	MemTableSize int64

	// MinFreeSpace is how much of the disk to keep free, in bytes, at most 1 PiB. When
	// less is free, transactions that make the store larger fail with
	// kv.ErrUnavailable. All others, and those that began with
	// kv.BeginOptions.Shrinks, may use three quarters of it. 0 means
	// DefaultMinFreeSpace, -1 keeps nothing free.
	MinFreeSpace int64

	// Logger receives the log of the store. nil means slog.Default().
	Logger *slog.Logger

	// FS is the file system of the store. nil means that of the operating system,
	// where only their owner has access to the folder and its files.
	FS vfs.FS

	// now replaces time.Now in tests.
	now func() time.Time
	// noGapIndex turns the gap index off, to measure what it does.
	noGapIndex bool
}

// Defaults of Options, in bytes.
const (
	DefaultCacheSize    = 32 << 20
	DefaultMemTableSize = 16 << 20
	DefaultMinFreeSpace = 256 << 20
)

const (
	maxCacheSize    int64 = 1 << 40
	minMemTableSize       = 1 << 20
	maxMemTableSize       = 1 << 30
	maxMinFreeSpace int64 = 1 << 50

	// gapIndexSize bounds the gap index, in bytes.
	gapIndexSize = 16 << 20

	// A writer waits while more memtables are in memory, or while a read has to look
	// at more tables of the top level.
	maxMemTables  = 4
	maxSublevels  = 16
	baseLevelSize = 256 << 20

	// blockSize is how much of a table is read at once, in bytes. Items are read one
	// after the other, so Pebble's 4 KiB would be small. The index of a table is one
	// block.
	blockSize      = 16 << 10
	indexBlockSize = 256 << 10

	// usualMemTables is how many memtables a store in use has: one for the writes, one
	// being flushed or kept for later. Pebble charges memtables to the cache.
	usualMemTables = 2
	// never disables a threshold of Pebble's. See store.waitRoom.
	never = 1 << 20
)

// Validate returns all problems of o, joined, each a *kv.OptionError, or nil.
func (o Options) Validate() error {
	var problems []error
	check := func(ok bool, field string, value int64, format string, args ...any) {
		if value != 0 && !ok { // 0 is the default
			problems = append(problems, &kv.OptionError{Package: "pebblekv", Field: field, Value: value, Want: fmt.Sprintf(format, args...)})
		}
	}
	check(o.CacheSize >= 1 && o.CacheSize <= maxCacheSize, "CacheSize", o.CacheSize, "1 to %d", maxCacheSize)
	check(o.MemTableSize >= minMemTableSize && o.MemTableSize <= maxMemTableSize,
		"MemTableSize", o.MemTableSize, "%d to %d", minMemTableSize, maxMemTableSize)
	check(o.MinFreeSpace >= -1 && o.MinFreeSpace <= maxMinFreeSpace,
		"MinFreeSpace", o.MinFreeSpace, "1 to %d, or -1 to keep nothing free", maxMinFreeSpace)
	return errors.Join(problems...)
}

func (o Options) withDefaults() Options {
	if o.CacheSize == 0 {
		o.CacheSize = DefaultCacheSize
	}
	if o.MemTableSize == 0 {
		o.MemTableSize = DefaultMemTableSize
	}
	if o.MinFreeSpace == 0 {
		o.MinFreeSpace = DefaultMinFreeSpace
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.FS == nil {
		o.FS = ownerFS{vfs.Default}
	}
	if o.now == nil {
		o.now = time.Now
	}
	return o
}

// pebbleOptions are for many small, short-lived items on a machine with few cores and
// little memory.
func (o Options) pebbleOptions(s *store, lock *pebble.Lock) *pebble.Options {
	p := &pebble.Options{
		FS:           s.disk,
		Lock:         lock,
		CacheSize:    o.CacheSize + usualMemTables*o.MemTableSize,
		MemTableSize: uint64(o.MemTableSize),
		// Fixed, because a store cannot go back to an older format.
		FormatMajorVersion: pebble.FormatValueSeparation,
		// Items are short-lived, so there are few levels: each is another place to
		// search, and to copy to.
		LBaseMaxBytes: baseLevelSize,
		// The store waits itself, see waitRoom.
		MemTableStopWritesThreshold: never,
		L0StopWritesThreshold:       never,
		// One compaction at a time leaves the other cores to the queues.
		CompactionConcurrencyRange: func() (lower, upper int) { return 1, 1 },
		Logger:                     pebbleLogger{o.Logger, s.disk.fail},
	}
	// The processor is the bottleneck, and the block format, which shares the common
	// prefixes of keys, already saves most of what compression would.
	p.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	for i := range p.Levels {
		p.Levels[i].BlockSize = blockSize
		p.Levels[i].IndexBlockSize = indexBlockSize
	}
	// Reads request no compactions; those worth doing are found without that.
	p.Experimental.ReadSamplingMultiplier = -1
	p.EventListener = &pebble.EventListener{
		BackgroundError: func(err error) { o.Logger.Warn("pebblekv: background work failed", "error", err.Error()) },
		DataCorruption:  func(i pebble.DataCorruptionInfo) { s.damage.note(i.Path, i.Details) },
		WALCreated:      func(pebble.WALCreateInfo) { s.rotated.Store(true) },
		FlushEnd:        func(pebble.FlushInfo) { s.noteFlush() },
		CompactionEnd:   func(pebble.CompactionInfo) { s.madeRoom() },
	}
	return p
}

// readOnly are for looking at a folder without changing it.
func (o Options) readOnly(lock *pebble.Lock) *pebble.Options {
	return &pebble.Options{
		FS:                 tableFS{o.FS},
		Lock:               lock,
		ReadOnly:           true,
		CacheSize:          minMemTableSize,
		MemTableSize:       uint64(o.MemTableSize),
		FormatMajorVersion: pebble.FormatValueSeparation,
		Logger:             pebbleLogger{o.Logger, func(error) {}}, // Open fails, too.
	}
}

// pebbleLogger forwards Pebble's log. What Pebble calls fatal ends the store, not the
// process.
type pebbleLogger struct {
	logger *slog.Logger
	fail   func(error)
}

func (l pebbleLogger) Infof(format string, args ...any) {
	if l.logger.Enabled(context.Background(), slog.LevelDebug) {
		l.logger.Debug("pebble: " + fmt.Sprintf(format, args...))
	}
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.logger.Error("pebble: " + fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.fail(fmt.Errorf("pebble: "+format, args...))
}
