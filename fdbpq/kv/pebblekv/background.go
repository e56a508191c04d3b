package pebblekv

import (
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// backgroundPause is how long background work waits after a failure.
	backgroundPause = time.Second

	// backgroundLine is the shortest time between two log lines about failures.
	backgroundLine = time.Minute
)

// background slows down what Pebble tries again at once, some thousand times a second: statistics
// and compactions of a table that cannot be opened. It is safe for concurrent use.
type background struct {
	disk *diskFS
	now  func() time.Time

	failing atomic.Bool // the last compaction failed

	mu       sync.Mutex
	nextLine time.Time // when there may be another
}

// note is told of each failure. It logs one a minute, and makes the statistics wait. Flushes and
// compactions call it with Pebble's lock held, where nothing may wait.
func (b *background) note(err error) {
	b.log(err)
	if inStatistics() {
		b.pause()
	}
}

func (b *background) log(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := b.now(); !now.Before(b.nextLine) {
		b.nextLine = now.Add(backgroundLine)
		b.disk.logger.Warn("pebblekv: background work failed", slog.String("error", err.Error()))
	}
}

// pause waits, unless the folder is being closed, or still being opened, which requests wait for.
func (b *background) pause() {
	if !b.disk.opened.Load() {
		return
	}
	timer := time.NewTimer(backgroundPause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.disk.released:
	}
}

// inStatistics reports whether it was called by Pebble's statistics of tables, which hold no lock.
// The event does not say.
func inStatistics() bool {
	var callers [16]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers[:])])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, ".(*DB).collectTableStats") {
			return true
		}
		if !more {
			return false
		}
	}
}

// scheduler is a scheduler of Pebble's that waits after a compaction that failed. A compaction is
// done, and holds no lock, when it returns its grant; the next one begins after that.
type scheduler struct {
	pebble.CompactionScheduler
	background *background
}

// Register implements pebble.CompactionScheduler.
func (s *scheduler) Register(goroutines int, db pebble.DBForCompaction) {
	s.CompactionScheduler.Register(goroutines, scheduledDB{db, s.background})
}

// TrySchedule implements pebble.CompactionScheduler.
func (s *scheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	ok, handle := s.CompactionScheduler.TrySchedule()
	return ok, grant{handle, s.background}
}

type scheduledDB struct {
	pebble.DBForCompaction
	background *background
}

// Schedule implements pebble.DBForCompaction.
func (d scheduledDB) Schedule(handle pebble.CompactionGrantHandle) bool {
	return d.DBForCompaction.Schedule(grant{handle, d.background})
}

type grant struct {
	pebble.CompactionGrantHandle
	background *background
}

// Done implements pebble.CompactionGrantHandle.
func (g grant) Done() {
	if g.background.failing.Load() {
		g.background.pause()
	}
	g.CompactionGrantHandle.Done()
}
