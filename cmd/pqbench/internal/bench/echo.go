package bench

import (
	"context"
	"fmt"
	"io"

	"github.com/nats-io/nats.go"
)

// Echo is the echo service: it answers requests on EchoSubject with their own payload until
// ctx ends, and prints a line when it is ready. The error says why it had to end before.
func Echo(ctx context.Context, url string, ready io.Writer) error {
	usable, broken := context.WithCancelCause(ctx)
	defer broken(nil)

	nc, err := nats.Connect(url, nats.Name("pqbench echo"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { broken(err) }))
	if err != nil {
		return err
	}
	defer nc.Close()

	_, err = nc.QueueSubscribe(EchoSubject, "echo", func(m *nats.Msg) {
		if err := m.Respond(m.Data); err != nil {
			broken(err)
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		return err
	}

	if _, err := fmt.Fprintln(ready, "ready"); err != nil {
		return err
	}

	<-usable.Done()
	if ctx.Err() != nil {
		return nil // told to stop
	}
	return context.Cause(usable)
}
