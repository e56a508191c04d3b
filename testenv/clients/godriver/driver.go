// Package godriver is the driver over the Go client: see package clients. It is a package, and not
// a program, so that the binary of the tests can be the driver and nothing else is built.
package godriver

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// driver obeys commands.
type driver struct {
	client *client.Client
	out    struct {
		sync.Mutex
		*json.Encoder
	}

	mu      sync.Mutex
	leases  map[string]*client.Delivery // by the names that answers gave them
	joins   map[string]*client.OpenJoin // by the ids of the joiners
	workers map[string]*worker
}

// Main is the whole driver. It returns when its input ends, or after exit or SIGTERM.
func Main() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	nc, err := connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()

	grammar, err := subjects.New(cmp.Or(os.Getenv("PQ_PREFIX"), subjects.DefaultPriorityPrefix),
		cmp.Or(os.Getenv("PQ_FIFO_PREFIX"), subjects.DefaultFIFOPrefix))
	if err != nil {
		return err
	}

	timeout, err := time.ParseDuration(cmp.Or(os.Getenv("PQ_TIMEOUT"), "10s"))
	if err != nil {
		return err
	}

	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	d := &driver{
		client:  client.New(nc, client.WithGrammar(grammar), client.WithTimeout(timeout)),
		leases:  map[string]*client.Delivery{},
		joins:   map[string]*client.OpenJoin{},
		workers: map[string]*worker{},
	}
	d.out.Encoder = json.NewEncoder(os.Stdout)
	d.say(object{"event": "ready"})

	ended := make(chan error, 1)
	go func() { ended <- d.obey(os.Stdin) }()

	select {
	case err = <-ended:
	case <-ctx.Done():
		d.stopAll()
	}
	return err
}

// connect connects to NATS.
func connect(ctx context.Context) (*nats.Conn, error) {
	options := []nats.Option{
		nats.ReconnectWait(50 * time.Millisecond), nats.ReconnectJitter(0, 0),
	}
	if user := os.Getenv("NATS_USER"); user != "" {
		options = append(options, nats.UserInfo(user, os.Getenv("NATS_PASSWORD")))
	}
	if prefix := os.Getenv("PQ_INBOX_PREFIX"); prefix != "" {
		options = append(options, nats.CustomInboxPrefix(prefix))
	}
	return client.Connect(ctx, os.Getenv("NATS_URL"), options...)
}

// object is a JSON object.
type object map[string]any

// say prints a line.
func (d *driver) say(line object) {
	d.out.Lock()
	defer d.out.Unlock()
	_ = d.out.Encode(line) // if nobody reads it, the driver ends soon
}

// obey carries out the commands that it reads, side by side.
func (d *driver) obey(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)

	for lines.Scan() {
		var c command
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&c); err != nil {
			_ = json.Unmarshal(lines.Bytes(), &struct{ N *int }{&c.N})
			d.answer(c.N, nil, fmt.Errorf("%w: %w", errUnsupported, err))
			continue
		}

		if c.Op == "exit" {
			d.answer(c.N, nil, nil)
			return nil
		}

		go func() {
			value, err := c.run(context.Background(), d)
			d.answer(c.N, value, err)
		}()
	}
	return lines.Err()
}

func (d *driver) answer(n int, value any, err error) {
	if err != nil {
		d.say(object{"n": n, "error": errorObject(err)})
	} else {
		d.say(object{"n": n, "value": value})
	}
}

// errUnsupported is an operation or member that the driver does not know.
var errUnsupported = errors.New("unsupported")

// classes has the name of each error, in an order in which the first that matches counts.
var classes = []struct {
	err  error
	name string
}{
	{errUnsupported, "Unsupported"},
	{client.ErrNoHeartbeat, "NoHeartbeat"},
	{client.ErrBadReply, "BadReply"},
	{client.ErrUnknownOutcome, "UnknownOutcome"},
	{client.ErrNotSent, "NotSent"},
	{client.ErrNoBridge, "NoBridge"},
	{client.ErrBadRequest, "BadRequest"},
	{client.ErrNotFound, "NotFound"},
	{client.ErrEmpty, "Empty"},
	{client.ErrLeaseLost, "LeaseLost"},
	{client.ErrLeased, "Leased"},
	{client.ErrJoined, "Joined"},
	{client.ErrChain, "Chain"},
	{client.ErrTooLarge, "TooLarge"},
	{client.ErrOverloaded, "Overloaded"},
	{client.ErrInternal, "Internal"},
	{client.ErrUnavailable, "Unavailable"},
	{client.ErrUnsettled, "Unsettled"},
	{context.DeadlineExceeded, "Timeout"},
}

func class(err error) string {
	var failed *client.JobFailed
	if errors.As(err, &failed) {
		return "JobFailed"
	}
	var called *client.NotDone
	if errors.As(err, &called) {
		return "NotDone"
	}
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	return "BadArgument" // of the driver itself, such as bad base64
}

func errorObject(err error) object {
	o := object{
		"class":   class(err),
		"code":    "0",
		"reason":  "",
		"text":    err.Error(),
		"unknown": errors.Is(err, client.ErrUnknownOutcome),
	}

	var answered *client.Error
	if errors.As(err, &answered) {
		o["code"], o["reason"] = fmt.Sprint(int(answered.Code)), answered.Reason
	}
	var called *client.NotDone
	if errors.As(err, &called) {
		o["job"] = called.ID
	}
	return o
}
