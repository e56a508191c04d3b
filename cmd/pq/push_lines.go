package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/input"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/interrupt"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
)

// pushInterrupted is what a second signal costs.
const pushInterrupted = "pq will not know what is in the queue"

// oneUnknown is what an unknown outcome of the push of one item means.
const oneUnknown = "the item may be in the queue"

// pushLines pushes each line of standard input, without its line end. Lines that have arrived
// together share a batch, so that those of a file are pushed by the thousand, and one that somebody
// types at once. It stops at the first failure or when a signal comes. Its error says which lines
// are in the queue. A terminal shows how many were pushed in place of their ids, unless they are
// typed there.
func pushLines(s *session, priority int64, header nats.Header, asJSON bool) error {
	cmd := s.of.cmd
	in, out := cmd.InOrStdin(), cmd.OutOrStdout()
	printIDs := asJSON || !terminal.Is(out) || terminal.Is(in)
	printed := func(line int, ack client.PushAck) error {
		if !printIDs {
			return nil
		}
		return printPushed(s.of, line, ack, asJSON)
	}

	defer interrupt.Say(cmd, pushInterrupted)()

	lines, done, begun := input.NewLines(in, int(s.nc.MaxPayload())), 0, time.Now()
	for {
		values, err := interrupt.Await(cmd.Context(), lines.NextBatch)
		if err == io.EOF {
			break
		}
		var failed []error
		if err == nil {
			failed, err = pushBatch(s, priority, header, done, values, printed)
		}
		if err != nil {
			return fmt.Errorf("%w%s", err, input.Report(done, failed))
		}
		done += len(values)
	}

	if printIDs {
		return nil
	}

	_, err := fmt.Fprintf(out, "%s pushed to %s in %s\n", items(int64(done), ""), s.of.name,
		terminal.InWords(time.Since(begun)))
	return err
}

// pushBatch pushes the lines after the first done ones, and returns the error of each. err is that
// of the first line that is not in the queue, or whose id could not be printed.
func pushBatch(
	s *session, priority int64, header nats.Header, done int, values [][]byte,
	printed func(line int, ack client.PushAck) error,
) (failed []error, err error) {
	list := make([]client.PushItem, len(values))
	for i, value := range values {
		list[i] = client.PushItem{Priority: priority,
			Message: client.Message{Value: value, Headers: header}}
	}

	results, unknown := make([]client.PushResult, 1), oneUnknown
	if len(list) == 1 { // which may fill a message, so that a batch has no room for it
		results[0].PushAck, results[0].Err = s.queue.Push(s.usable, priority, list[0].Message)
	} else {
		results, _ = s.queue.PushMany(s.usable, list) // the results have the errors
		unknown = "the items of this batch may be in the queue, all or none"
	}

	failed = make([]error, len(results))
	for i, result := range results {
		failed[i] = s.explain(result.Err, unknown)
		if err != nil {
			continue
		}
		if err = failed[i]; err == nil {
			err = printed(done+1+i, result.PushAck)
		}
		if err != nil {
			err = fmt.Errorf("line %d: %w", done+1+i, err)
		}
	}

	return failed, err
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
func printPushed(q *queue, line int, ack client.PushAck, asJSON bool) (err error) {
	out := q.cmd.OutOrStdout()
	if asJSON {
		stored := pushed{Line: line, Queue: ack.Queue, ID: ack.ID, Duplicate: ack.Duplicate}
		if !q.fifo {
			stored.Priority = &ack.Priority
		}
		err = json.NewEncoder(out).Encode(stored)
	} else {
		_, err = fmt.Fprintln(out, ack.ID)
	}

	if err != nil {
		return fmt.Errorf("the item is in the queue as %s, but its id cannot be printed: %w",
			ack.ID, err)
	}

	return nil
}
