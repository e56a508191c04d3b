package sources

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// puller fetches the messages of a consumer. The one of nats.go hides a message with a header
// Status and no payload, as if the server had sent it about a request. But what the server sends
// about a request has no reply subject.
type puller struct {
	nc       *nats.Conn
	requests string // the subject
	request  pullRequest
	inbox    *nats.Subscription
	messages chan *nats.Msg
	timer    *time.Timer
	expected int // how many messages the requests may still bring
}

// pullRequest is the payload of a request, with durations in nanoseconds.
type pullRequest struct {
	Expires   time.Duration `json:"expires"`
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// newPuller returns the puller of a consumer. The caller must stop it.
func newPuller(nc *nats.Conn, domain string, c *jetstream.ConsumerInfo) (p *puller, err error) {
	api := "$JS.API"
	if domain != "" {
		api = "$JS." + domain + ".API"
	}

	p = &puller{
		nc:       nc,
		requests: api + ".CONSUMER.MSG.NEXT." + c.Stream + "." + c.Name,
		request: pullRequest{
			Expires: 6 * heartbeat, Heartbeat: heartbeat,
			MaxBytes: max(4*maxBytes, 3*int(nc.MaxPayload())),
		},
		messages: make(chan *nats.Msg, 2*prefetch),
		timer:    time.NewTimer(heartbeat),
	}

	p.inbox, err = nc.ChanSubscribe(nc.NewInbox(), p.messages)
	return p, err
}

func (p *puller) stop() {
	p.timer.Stop()
	_ = p.inbox.Unsubscribe() // fails if the connection has ended
}

// next returns the next message, or nil if the server says something about a request. The error is
// nats.ErrTimeout if neither arrives within the wait.
func (p *puller) next(ctx context.Context, wait time.Duration) (*nats.Msg, error) {
	// Ask for more while half of the messages asked for are still to come.
	if p.expected <= prefetch/2 {
		p.request.Batch = prefetch - p.expected
		request, _ := json.Marshal(p.request) // it has only numbers
		if err := p.nc.PublishRequest(p.requests, p.inbox.Subject, request); err != nil {
			return nil, err
		}
		p.expected = prefetch
	}

	p.timer.Reset(wait)
	select {
	case m := <-p.messages:
		if m.Reply == "" {
			return nil, p.hearStatus(m.Header)
		}
		p.expected--
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.timer.C:
		return nil, nats.ErrTimeout
	}
}

// hearStatus handles what the server says about a request: that it still waits, or how many
// messages it has not brought at its end.
func (p *puller) hearStatus(h nats.Header) error {
	status := h.Get("Status")
	if status == "100" {
		return nil
	}

	left, err := strconv.Atoi(h.Get("Nats-Pending-Messages"))
	if err != nil || left < 0 {
		return fmt.Errorf("JetStream delivers no more: %s %s", status, h.Get("Description"))
	}

	p.expected = max(p.expected-left, 0)
	return nil
}
