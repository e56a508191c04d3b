package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// receipts is what pq push --lines prints about the items in the queue: each id,
// or on a terminal only their number, after a progress bar.
type receipts struct {
	queue   *queue
	json    bool
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
func newReceipts(q *queue, asJSON bool, in io.Reader) *receipts {
	cmd := q.cmd
	r := &receipts{queue: q, json: asJSON, out: cmd.OutOrStdout(), begun: time.Now()}
	r.summary = !asJSON && terminal.Is(r.out) && !terminal.Is(in)
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
		return printPushed(r.out, line, ack, r.queue.fifo, r.json)
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
	_, err := fmt.Fprintf(r.out, "%s pushed to %s in %s\n", items(r.items, ""), r.queue.name, terminal.InWords(time.Since(r.begun)))
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

// pushed is an item in the queue, as --json prints it.
type pushed struct {
	Line      int    `json:"line,omitempty"` // with --lines, from 1
	Queue     string `json:"queue"`
	ID        string `json:"id"`
	Priority  *int64 `json:"priority,omitempty"` // nil in a FIFO queue
	Duplicate bool   `json:"duplicate,omitempty"`
}

// printPushed prints an acknowledged push; line is 0 without --lines.
func printPushed(out io.Writer, line int, ack client.PushAck, fifo, asJSON bool) error {
	var err error
	if asJSON {
		stored := pushed{Line: line, Queue: ack.Queue, ID: ack.ID, Duplicate: ack.Duplicate}
		if !fifo {
			stored.Priority = &ack.Priority
		}
		err = json.NewEncoder(out).Encode(stored)
	} else {
		_, err = fmt.Fprintln(out, ack.ID)
	}

	if err != nil {
		return fmt.Errorf("the item is in the queue as %s, but its id cannot be printed: %w", ack.ID, err)
	}
	return nil
}
