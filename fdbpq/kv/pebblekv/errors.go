package pebblekv

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// ErrInUse is returned by Open if another DB of this or another process uses the folder.
var ErrInUse = errors.New("is in use by another process, which has to end first")

// errDamaged says that something that had been synced is gone.
var errDamaged = errors.New("transactions that were acknowledged are damaged or missing")

// errMixed says that Pebble would take the files of two histories for one.
var errMixed = errors.New("the files of the store do not belong together")

// restoreMixed says what to do about errMixed.
const restoreMixed = "; perhaps a backup was copied over another store, or a file MANIFEST-* is " +
	"damaged: nothing was changed, move the folder away and restore a backup into an empty one"

// errGone says that the folder, or its lock, was deleted or replaced since it was opened.
var errGone = errors.New("pebblekv: the folder was deleted or replaced while it was in use")

const damagedReason = "a file of the store is damaged, missing or unreadable" + seeLog

const seeLog = ": see the log of the service"

// badBackup returns the error of a Restore whose copy of a backup cannot be used because of err. If
// the backup is damaged it says so, in place of what to do about a damaged store.
func badBackup(err error) error {
	if err == nil || !errors.Is(err, errDamaged) && !errors.Is(err, errMixed) &&
		!errors.Is(err, kv.ErrCorrupt) && !pebble.IsCorruptionError(err) {
		return err
	}
	hide := strings.NewReplacer(seeLog, "", restoreMixed, "", kv.ErrCorrupt.Error()+": ", "")
	return fmt.Errorf("%w: this backup is damaged, and nothing of it was kept: try another one: %s",
		kv.ErrCorrupt, hide.Replace(kv.Detail(err)))
}

// failure returns the error for the caller of an operation that failed because of cause. Its text
// names no files.
func failure(cause error) error {
	switch {
	case errors.Is(cause, kv.ErrUnavailable):
		return cause
	case errors.Is(cause, errDamaged), errors.Is(cause, errMixed), pebble.IsCorruptionError(cause):
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
	case isFull(cause):
		return "disk full"
	case known:
		return "the disk failed: " + errno.Error()
	}

	return "the disk failed"
}

// isFull reports whether something failed because the disk, or a quota, is full.
func isFull(cause error) bool {
	return errors.Is(cause, syscall.ENOSPC) || errors.Is(cause, syscall.EDQUOT)
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
		return fmt.Errorf("%w: %w: restore the folder from a backup, all of it and into an empty "+
			"folder", errDamaged, err)
	}
	return err
}

// explainMisfit is explainDamage for reading a whole folder, before anything was changed.
func explainMisfit(err error) error {
	explained := explainDamage(err)
	if _, system := errors.AsType[syscall.Errno](err); system || errors.Is(explained, errDamaged) {
		return explained
	}

	// Pebble does not mark its errors about tables that the manifest does not list, and about logs
	// older than the tables.
	return fmt.Errorf("%w: %w%s", errMixed, err, restoreMixed)
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
