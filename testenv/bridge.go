package testenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"testing"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/dispatch"
)

// Bridge is a running bridge.
type Bridge struct {
	*bridge.Bridge
	t    testing.TB
	stop context.CancelFunc

	answers func() error  // of the environment
	done    chan struct{} // closed when Run has returned err
	err     error
}

// Unconfirmed matches the error of a shutdown that has left nothing undone. NATS may not have
// answered within two seconds, because the machine is busy.
var Unconfirmed = regexp.MustCompile(`^(bridge: NATS did not confirm.*\n?)+$`)

// StartBridge starts a bridge on the environment's store, the first or another one. It does not
// wait until the bridge is ready: see WaitReady. The changes are applied after Options.Bridge.
func (e *Env) StartBridge(changes ...func(*bridge.Options)) *Bridge {
	e.t.Helper()
	o := bridge.Options{
		NATSURL:     e.NATS.URL(),
		NATSOptions: e.NATS.connectOptions(),
		DB:          e.served,
		Keyspace:    e.Keyspace,
		Grammar:     e.Grammar,
		HTTPAddr:    "127.0.0.1:0",
		Logger:      logger(e.t),
		Version:     "0.0.1",
		// No test fails because the machine is slow. What asks over HTTP asks again.
		Limits:      dispatch.Limits{RequestTimeout: Patience},
		HTTPTimeout: Patience / 6,
	}

	if isBubble(e.t) {
		o.HTTPAddr = ""
	}
	if e.options.Bridge != nil {
		e.options.Bridge(&o)
	}

	for _, change := range changes {
		change(&o)
	}

	b, err := bridge.New(o)
	if err != nil {
		e.t.Fatalf("testenv: bridge: %v", err)
	}

	ctx, stop := context.WithCancel(context.Background())
	s := &Bridge{Bridge: b, t: e.t, stop: stop, answers: e.answers, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.err = b.Run(ctx)
	}()
	e.t.Cleanup(func() {
		select {
		case <-s.done: // the test stopped it and saw the error
		default:
			s.MustStop()
		}
	})

	return s
}

// Stop ends the bridge in an orderly way and returns Run's error.
func (b *Bridge) Stop() error {
	b.BeginStop()
	<-b.done
	return b.err
}

// MustStop is Stop for a bridge that has to leave nothing undone. That NATS has not confirmed it in
// time is no failure.
func (b *Bridge) MustStop() {
	b.t.Helper()
	if err := b.Stop(); err != nil && !Unconfirmed.MatchString(err.Error()) {
		b.t.Errorf("testenv: bridge: %v", err)
	}
}

// BeginStop tells the bridge to end and does not wait.
func (b *Bridge) BeginStop() { b.stop() }

// Done is closed when the bridge is gone.
func (b *Bridge) Done() <-chan struct{} { return b.done }

// WaitReady waits until the bridge says that it is ready.
func (b *Bridge) WaitReady() {
	b.t.Helper()
	Eventually(b.t, func() error {
		if b.Addr() == "" {
			return b.answers()
		}
		ready, reasons, err := b.Ready()
		if err == nil && !ready {
			err = fmt.Errorf("not ready: %v", reasons)
		}
		return err
	})
}

// Ready asks /readyz whether the bridge is ready and, if not, why.
func (b *Bridge) Ready() (ready bool, reasons []string, err error) {
	status, body, err := b.Get("/readyz")
	if err != nil {
		return false, nil, err
	}

	var answer struct {
		Ready   bool     `json:"ready"`
		Reasons []string `json:"reasons"`
	}

	if err := json.Unmarshal(body, &answer); err != nil {
		return false, nil, fmt.Errorf("body %q: %w", body, err)
	}
	if answer.Ready != (status == http.StatusOK) {
		return false, nil, fmt.Errorf("status %d with body %s", status, body)
	}

	return answer.Ready, answer.Reasons, nil
}

// Get reads a page of the bridge's HTTP server. It may be called from any
// goroutine.
func (b *Bridge) Get(path string) (status int, body []byte, err error) {
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		Timeout:   Patience,
	}
	reply, err := client.Get("http://" + b.Addr() + path)
	if err != nil {
		return 0, nil, err
	}

	body, err = io.ReadAll(reply.Body)
	return reply.StatusCode, body, errors.Join(err, reply.Body.Close())
}
