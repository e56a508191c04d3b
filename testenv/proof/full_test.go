package proof_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

const (
	// smallDiskSize has room for three times fewOnSmallDisk items and the reserve.
	smallDiskSize  = 1 << 30
	fewOnSmallDisk = 25_000

	// betweenFull is the number of operations between two faults, a third of which fill the disk.
	betweenFull = 20_000

	// fullSteps is how many steps a full disk is freed in, unless that is done at once.
	fullSteps = 8
)

// startFull starts a process on a small disk, which another writer fills to its last byte. About
// half of the processes keep nothing free, so that their own writes fail.
func startFull(r *rig) {
	disk := mountSmallDisk(r.t)
	s := startOn(r, filepath.Join(disk, "store"), -r.random.Int64N(2))
	r.few, r.between = fewOnSmallDisk, betweenFull

	full := func(steps int, meanwhile func()) func() {
		return func() {
			w := startFiller(r.t, filepath.Join(disk, "filler"))
			r.wantRefused(s)
			meanwhile()
			w.free(steps, func() { r.hold(answerTime / fullSteps) })
			r.wantAccepted(s)
		}
	}
	restart := func() {
		s.kill()
		s.config.MinFree = -1 - s.config.MinFree // nothing or the default, by turns
		s.start()
		r.wantNotStarted(s)
	}

	for range 2 {
		r.faults = append(r.faults,
			fault{"disk full to its last byte, then freed", full(1, func() { r.hold(answerTime) })},
			fault{"disk full to its last byte, then freed in steps", full(fullSteps, func() {})},
			fault{"bridge killed (SIGKILL) on a full disk, which is freed in steps",
				full(fullSteps, restart)},
		)
	}
}

// mountSmallDisk returns a folder on a file system of its own, which is gone when this process and
// its children have ended, however they end. Without the right to mount one, the test is skipped.
func mountSmallDisk(t *testing.T) string {
	if runtime.GOOS != "linux" {
		t.Skip("skipped: only Linux has a file system that is gone with its last process")
	}

	folder := t.TempDir()
	options := fmt.Sprint("mode=700,size=", smallDiskSize)
	output, err := harness.Command("mount", "-t", "tmpfs", "-o", options, "small-disk",
		folder).CombinedOutput()
	if err != nil {
		t.Skipf("skipped: cannot mount a small disk, as root could: %v: %s", err, output)
	}

	disk, err := os.Open(folder)
	output, notUnmounted := harness.Command("umount", "-l", folder).CombinedOutput()
	if err := errors.Join(err, notUnmounted); err != nil {
		t.Fatalf("unmounting what stays while it is open: %v: %s", err, output)
	}
	t.Cleanup(func() { must(t, disk.Close()) })

	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), disk.Fd())
}

// filler takes all that is free of a disk, and takes it again if some is freed.
type filler struct {
	t    *testing.T
	file *os.File
	stop chan struct{}
	done chan struct{}
}

// startFiller returns when the disk is full.
func startFiller(t *testing.T, path string) *filler {
	file, err := os.Create(path)
	must(t, err)
	f := &filler{t: t, file: file, stop: make(chan struct{}), done: make(chan struct{})}
	full := make(chan struct{}, 1)

	go func() {
		defer close(f.done)
		for block := make([]byte, 1<<20); ; {
			_, err := file.Write(block)
			if err != nil && !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("filling a disk: %v", err)
				close(full)
				return
			}
			if err == nil {
				continue
			}

			select {
			case full <- struct{}{}:
			default:
			}
			select {
			case <-f.stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()

	<-full
	return f
}

// free frees the disk in some steps, with pauses.
func (f *filler) free(steps int, pause func()) {
	close(f.stop)
	<-f.done
	size, err := f.file.Seek(0, io.SeekCurrent)
	must(f.t, err)

	for n := steps - 1; n >= 0; n-- {
		must(f.t, f.file.Truncate(size*int64(n)/int64(steps)))
		pause()
	}

	must(f.t, errors.Join(f.file.Close(), os.Remove(f.file.Name())))
}

// diskFull is in the refusal of a request on a full disk, with figures if the store has a reserve.
const diskFull = "disk full"

var diskFullBy = regexp.MustCompile(diskFull + `: \d+ bytes free, \d+ needed`)

// wantRefused pushes until that is refused because the disk is full, which /readyz has to say as
// well.
func (r *rig) wantRefused(s *service) {
	c := r.clients[0]
	c.insist("a push to a full disk", func(ctx context.Context) error {
		err := pushProbe(ctx, c)
		var reply *client.Error
		if !errors.As(err, &reply) || reply.Code != subjects.CodeUnavailable || reply.Unknown {
			return fmt.Errorf("not refused: %w", err)
		}
		if s.config.MinFree == 0 && !diskFullBy.MatchString(reply.Text) ||
			!strings.Contains(reply.Text, diskFull) {
			return fmt.Errorf("refused without the reason: %w", err)
		}
		return wantReady(s, http.StatusServiceUnavailable, diskFull)
	})
	r.tally.add("pushes refused because the disk is full", 1)
}

// wantNotStarted waits until a process that starts on a full disk says so. Nothing may be stored
// before it has written what its logs hold into tables; if they hold nothing, it refuses pushes.
func (r *rig) wantNotStarted(s *service) {
	c := r.clients[0]
	c.insist("a start on a full disk", func(ctx context.Context) error {
		if err := pushProbe(ctx, c); err == nil {
			return errors.New("a push was accepted")
		}
		return wantReady(s, http.StatusServiceUnavailable, diskFull)
	})
	r.tally.add("starts on a full disk", 1)
}

// wantAccepted pushes until the process, which nobody helps, accepts that.
func (r *rig) wantAccepted(s *service) {
	c := r.clients[0]
	c.insist("a push after a disk was full", func(ctx context.Context) error {
		return errors.Join(pushProbe(ctx, c), wantReady(s, http.StatusOK, ""))
	})
	c.insist("a purge after a disk was full", func(ctx context.Context) error {
		_, err := c.client.PriorityQueue("probe").Purge(ctx, client.Ready)
		return err
	})
}

// pushProbe pushes an item that is so large that logs without a reserve are soon full.
func pushProbe(ctx context.Context, c *burster) error {
	_, err := c.client.PriorityQueue("probe").Push(ctx, 0, make([]byte, 200_000))
	return err
}

// wantReady asks a process whether it is ready, and compares the code and the reason.
func wantReady(s *service, code int, reason string) error {
	reply, err := http.Get("http://" + s.http + "/readyz")
	if err != nil {
		return err
	}
	defer http.DefaultClient.CloseIdleConnections()
	text, err := io.ReadAll(reply.Body)
	err = errors.Join(err, reply.Body.Close())
	if err == nil && (reply.StatusCode != code || !strings.Contains(string(text), reason)) {
		err = fmt.Errorf("/readyz says %d %q, want %d %q", reply.StatusCode, text, code, reason)
	}
	return err
}
