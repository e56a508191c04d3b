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

// pushLines pushes each line of standard input, without its line end, and stops at
// the first failure or when a signal comes. Then it waits for the pushes under way,
// and its error says which lines are in the queue.
func (p *push) pushLines(s *session, header nats.Header) error {
	cmd := p.cmd
	in := cmd.InOrStdin()
	lines := input.NewLines(in, int(s.nc.MaxPayload()))
	r := p.newReceipts(cmd, in)
	defer r.close()
	defer interrupt.Say(cmd, pushInterrupted)()

	var o input.Outcomes
	group, going := errgroup.WithContext(cmd.Context())
	group.SetLimit(int(p.parallel))

	for {
		value, err := interrupt.Await(going, lines.Next)
		if err != nil {
			o.Ended = err
			break
		}
		o.Read++
		number := o.Read
		group.Go(func() error {
			if going.Err() != nil { // while this line waited for its turn
				o.Failed(number, going.Err())
				return nil
			}
			ack, err := s.push(int64(p.priority), client.Message{Value: value, Headers: header})
			if err != nil {
				o.Failed(number, err)
			} else {
				err = r.add(number, len(value), ack)
			}
			if err != nil {
				return fmt.Errorf("line %d: %w", number, err)
			}
			return nil
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
