package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// receipts is what pq push --lines prints about the items in the queue: each id,
// or on a terminal only their number, after a progress bar.
type receipts struct {
	push    *push
	out     io.Writer
	summary bool
	bar     *terminal.Progress // nil if none is shown

	mu    sync.Mutex
	items int64
	bytes int64 // of the lines pushed
	begun time.Time
}

// newReceipts decides what to print. Lines typed at the terminal are few, and each
// deserves an answer.
func (p *push) newReceipts(cmd *cobra.Command, in io.Reader) *receipts {
	r := &receipts{push: p, out: cmd.OutOrStdout(), begun: time.Now()}
	r.summary = !p.json && terminal.Is(r.out) && !terminal.Is(in)
	if stderr := cmd.ErrOrStderr(); r.summary && terminal.Is(stderr) {
		r.bar = terminal.NewProgress(stderr, remaining(in))
		cmd.SetErr(r.bar)
	}
	return r
}

// add records the push of a line, whose value has the given size.
func (r *receipts) add(line, size int, ack client.PushAck) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.summary {
		return r.push.printPushed(r.out, line, ack)
	}
	r.items++
	r.bytes += int64(size) + 1 // its line end
	r.bar.Show(r.bytes, terminal.Rate(r.items, "items", time.Since(r.begun)))
	return nil
}

// finish prints the summary, if all lines are in the queue.
func (r *receipts) finish() error {
	r.close()
	if !r.summary {
		return nil
	}
	_, err := fmt.Fprintf(r.out, "%s pushed to %s in %s\n", items(r.items, ""), r.push.name, terminal.InWords(time.Since(r.begun)))
	return err
}

// close removes the progress bar.
func (r *receipts) close() { r.bar.Clear() }

// remaining returns how many bytes are left to read, -1 if nobody knows.
func remaining(in io.Reader) int64 {
	f, ok := in.(*os.File)
	if !ok {
		return -1
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return -1
	}

	read, err := f.Seek(0, io.SeekCurrent)
	if err != nil || read >= info.Size() {
		return -1
	}
	return info.Size() - read
}
