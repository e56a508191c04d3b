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
// together share a batch, so a file is pushed by the thousand lines, and a typed line at once. It
// stops at the first failure or when a signal comes. Its error says which lines are in the queue. A
// terminal shows how many were pushed in place of their ids, unless they are typed there.
func pushLines(s *session, priority int64, header nats.Header) error {
	cmd := s.of.cmd
	in, out := cmd.InOrStdin(), cmd.OutOrStdout()
	printIDs := s.of.json || !terminal.Is(out) || terminal.Is(in)
	defer interrupt.Say(cmd, pushInterrupted)()

	max := s.nc.MaxPayload()
	lines, done, begun := input.NewLines(in, int(max), input.TooLarge(max)), 0, time.Now()
	for {
		values, err := interrupt.Await(cmd.Context(), lines.NextBatch)
		if err == io.EOF {
			break
		}
		var failed []error
		if err == nil {
			failed, err = pushBatch(s, priority, header, done, values, printIDs)
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
	s *session, priority int64, header nats.Header, done int, values [][]byte, printIDs bool,
) (failed []error, err error) {
	list := make([]client.PushItem, len(values))
	for i, value := range values {
		list[i] = client.PushItem{Priority: priority,
			Message: client.Message{Value: value, Headers: header}}
	}

	results, unknown := make([]client.PushResult, 1), oneUnknown
	if len(list) == 1 { // which may fill a message, so that a batch has no room for it
		r := &results[0]
		r.PushAck, r.Err = s.queue.PushMsg(s.finishing(), priority, list[0].Message)
	} else {
		results, _ = s.queue.PushMany(s.finishing(), list) // the results have the errors
		unknown = "the items of this batch may be in the queue, all or none"
	}

	failed = make([]error, len(results))
	for i, result := range results {
		failed[i] = s.explain(result.Err, unknown)
		if err != nil {
			continue
		}
		if err = failed[i]; err == nil && printIDs {
			err = s.of.printPushed(done+1+i, result.PushAck)
		}
		if err != nil {
			err = fmt.Errorf("line %d: %w", done+1+i, err)
		}
	}

	return failed, err
}

// printPushed prints an acknowledged push; line is 0 without --lines.
func (q *queue) printPushed(line int, ack client.PushAck) (err error) {
	out := q.cmd.OutOrStdout()
	if q.json {
		pushed := item{Line: line, Queue: ack.Queue, ID: ack.ID, Duplicate: ack.Duplicate}
		if !q.fifo {
			pushed.Priority = &ack.Priority
		}
		err = json.NewEncoder(out).Encode(pushed)
	} else {
		_, err = fmt.Fprintln(out, terminal.Plain(ack.ID))
	}

	if err != nil {
		return fmt.Errorf("the item is in the queue as %s, but its id cannot be printed: %w",
			ack.ID, err)
	}

	return nil
}
