package bench

import (
	"context"

	"github.com/nats-io/nats.go"
)

// Echo is the echo service: it answers requests on EchoSubject with their own payload until
// ctx ends. The error says why it had to end before.
func Echo(ctx context.Context, url string) error {
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
	if err != nil {
		return err
	}

	<-usable.Done()
	if ctx.Err() != nil {
		return nil // told to stop
	}
	return context.Cause(usable)
}
