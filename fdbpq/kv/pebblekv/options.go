package pebblekv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Options of a store. The zero value is ready to use.
type Options struct {
	// CacheSize is how much of the tables on disk is cached in memory, in bytes, at most 1 TiB. The
	// cache shrinks while there are more than two memtables, and grows while there are fewer.
	// 0 means DefaultCacheSize.
	CacheSize int64

	// MemTableSize is how much is collected in memory before it is flushed to a table on disk, in
	// bytes, from 1 MiB to 1 GiB. While the disk is slow, up to four memtables are in memory.
	// 0 means DefaultMemTableSize.
	MemTableSize int64

	// MinFreeSpace is how much of the disk to keep free, in bytes, at most 1 PiB. While less is
	// free, transactions that make the store larger fail with kv.ErrUnavailable. All others, and
	// any that began with kv.BeginOptions.Shrinks, may use three quarters of the space kept free. 0
	// means DefaultMinFreeSpace, -1 keeps nothing free.
	MinFreeSpace int64

	// Logger receives the log of the store. nil means slog.Default().
	Logger *slog.Logger

	// FS is the file system of the store. nil means the operating system's, where only its owner
	// has access to the folder.
	FS vfs.FS

	// now replaces time.Now in tests.
	now func() time.Time
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
)

// Validate returns all problems of o, joined, each a *kv.OptionError, or nil.
func (o Options) Validate() error {
	var problems []error
	check := func(ok bool, field string, value int64, format string, args ...any) {
		if ok || value == 0 { // 0 is the default
			return
		}
		problems = append(problems, &kv.OptionError{Package: "pebblekv",
			Field: field, Value: value, Want: fmt.Sprintf(format, args...)})
	}

	check(o.CacheSize >= 1 && o.CacheSize <= maxCacheSize,
		"CacheSize", o.CacheSize, "1 to %d", maxCacheSize)
	check(o.MemTableSize >= minMemTableSize && o.MemTableSize <= maxMemTableSize,
		"MemTableSize", o.MemTableSize, "%d to %d", minMemTableSize, maxMemTableSize)
	check(o.MinFreeSpace >= -1 && o.MinFreeSpace <= maxMinFreeSpace,
		"MinFreeSpace", o.MinFreeSpace, "1 to %d, or -1 to keep nothing free", maxMinFreeSpace)
	return errors.Join(problems...)
}

func (o Options) withDefaults() Options {
	o.CacheSize = cmp.Or(o.CacheSize, DefaultCacheSize)
	o.MemTableSize = cmp.Or(o.MemTableSize, DefaultMemTableSize)
	o.MinFreeSpace = cmp.Or(o.MinFreeSpace, DefaultMinFreeSpace)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.now == nil {
		o.now = time.Now
	}

	return o
}

// pebbleLogger forwards Pebble's log. What Pebble calls fatal ends the store, not the process.
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
