package main

import (
	"fmt"
	"io"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/input"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/interrupt"
)

// pushInterrupted is what a second signal costs.
const pushInterrupted = "pq will not know what is in the queue"

// oneUnknown is what an unknown outcome of the push of one item means.
const oneUnknown = "the item may be in the queue"

// pushLines pushes each line of standard input, without its line end. Lines that have arrived
// together share a batch, so that those of a file are pushed by the thousand, and one that somebody
// types at once. It stops at the first failure or when a signal comes. Then it waits for the pushes
// under way, and its error says which lines are in the queue.
func pushLines(s *session, priority int64, header nats.Header, parallel int, asJSON bool) error {
	cmd := s.of.cmd
	in := cmd.InOrStdin()
	lines := input.NewLines(in, int(s.nc.MaxPayload()))
	r := newReceipts(s.of, asJSON, in)
	defer r.close()
	defer interrupt.Say(cmd, pushInterrupted)()

	var o input.Outcomes
	group, going := errgroup.WithContext(cmd.Context())
	group.SetLimit(parallel)

	for {
		values, err := interrupt.Await(going, lines.NextBatch)
		if err != nil {
			o.Ended = err
			break
		}

		first := o.Read + 1
		o.Read += len(values)
		group.Go(func() error {
			if going.Err() != nil { // while these lines waited for their turn
				for i := range values {
					o.Failed(first+i, going.Err())
				}
				return nil
			}
			return pushBatch(s, priority, header, first, values, r, &o)
		})
	}

	err := group.Wait()
	if err == nil && o.Ended != io.EOF {
		err = o.Ended
	}
	if err != nil {
		return fmt.Errorf("%w%s", err, o.Report())
	}
	return r.finish()
}

// pushBatch pushes lines, and prints and records their results. The error is that of the first
// line that is not in the queue, or whose id could not be printed.
func pushBatch(s *session, priority int64, header nats.Header, first int, values [][]byte, r *receipts, o *input.Outcomes) (err error) {
	list := make([]client.Message, len(values))
	for i, value := range values {
		list[i] = client.Message{Value: value, Headers: header}
	}
	results, unknown := make([]client.PushResult, 1), oneUnknown
	if len(list) == 1 { // which may fill a message, so that a batch has no room for it
		results[0].PushAck, results[0].Err = s.queue.Push(s.usable, priority, list[0])
	} else {
		results, _ = s.queue.PushMany(s.usable, priority, list) // the results have the errors
		unknown = "the items of this batch may be in the queue, all or none"
	}

	for i, result := range results {
		failed := s.explain(result.Err, unknown)
		if failed != nil {
			o.Failed(first+i, failed)
		} else if err == nil {
			failed = r.add(first+i, len(values[i]), result.PushAck)
		}
		if failed != nil && err == nil {
			err = fmt.Errorf("line %d: %w", first+i, failed)
		}
	}
	return err
}
