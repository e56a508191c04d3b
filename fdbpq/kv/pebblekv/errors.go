package pebblekv

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// ErrInUse is returned by Open if another DB of this or another process uses the folder.
var ErrInUse = errors.New("is in use by another process, which has to end first")

// errDamaged says that something that had been synced is gone.
var errDamaged = errors.New("transactions that were acknowledged are damaged or missing")

// errGone says that the folder, or its lock, is not the one that was opened.
var errGone = errors.New("pebblekv: the folder was deleted or replaced while it was in use")

const damagedReason = "a file of the store is damaged, missing or unreadable: " +
	"see the log of the service"

// failure returns the error for the caller of an operation that failed because of cause. Its text
// names no files.
func failure(cause error) error {
	if errors.Is(cause, errDamaged) || pebble.IsCorruptionError(cause) {
		return kv.WithCause(kv.ErrCorrupt, damagedReason, cause)
	}
	return kv.WithCause(kv.ErrUnavailable, reason(cause), cause)
}

// unknownOutcome is failure for a commit that had started.
func unknownOutcome(cause error) error {
	return kv.WithCause(kv.ErrCommitUnknown, reason(cause), cause)
}

// reason says in few words why something failed.
func reason(cause error) string {
	errno, known := errors.AsType[syscall.Errno](cause)
	switch {
	case errors.Is(cause, errGone):
		return "the folder of the store was deleted or replaced"
	case known && (errno == syscall.ENOSPC || errno == syscall.EDQUOT):
		return "disk full"
	case known:
		return "the disk failed: " + errno.Error()
	}

	return "the disk failed"
}

// passing reports whether a read failed for lack of a resource that may be available again in a
// moment.
func passing(err error) bool {
	errno, _ := errors.AsType[syscall.Errno](err)
	passes := []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR}
	return slices.Contains(passes, errno)
}

// explainDamage adds what to do to Pebble's error about a damaged folder.
func explainDamage(err error) error {
	missing := errors.Is(err, pebble.ErrDBDoesNotExist) || errors.Is(err, fs.ErrNotExist)
	if missing || pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: %w: restore the folder from a backup", errDamaged, err)
	}
	return err
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) || os.IsNotExist(err) {
		return nil
	}
	return err
}

// maxNoted bounds how many kinds of damage are logged.
const maxNoted = 1000

// damage remembers what could not be read. It is safe for concurrent use.
type damage struct {
	logger *slog.Logger

	mu    sync.Mutex
	noted map[string]struct{}
	first error
}

// note logs damage, once for each file or message.
func (d *damage) note(what string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.noted[what]; known || len(d.noted) >= maxNoted {
		return
	}

	if d.noted == nil {
		d.noted = make(map[string]struct{})
	}

	d.noted[what] = struct{}{}
	if d.first == nil {
		d.first = kv.WithCause(kv.ErrCorrupt, damagedReason, err)
	}

	// As a string: Pebble's errors would be logged with stacks.
	d.logger.Error("pebblekv: stored data cannot be read: "+
		"stop the service, save the folder, and restore a backup",
		"what", what, "error", err.Error())
}

// err returns an error wrapping kv.ErrCorrupt if something could not be read.
func (d *damage) err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.first
}
