package proof_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// Some leases are pulls through the JetStream face, and some of their acknowledgements are
// JetStream's. The others are acknowledgements of leases: a token is good for both.
const (
	// pullWait is the length of leases that pulls get in histories, which the settings of the
	// queues say.
	pullWait = 2 * fdbpq.MinLease
	// silenceTime is how long to wait for the answer to an acknowledgement, which does not come if
	// the lease is lost.
	silenceTime = 300 * time.Millisecond
	// maxResting is how many pulls that are over are still listened to: nothing more may arrive.
	maxResting = 8
	// scarceConsumer may have at most maxScarce items outstanding.
	scarceConsumer = "scarce"
	maxScarce      = 5
)

// openLeafPort adds a leaf node port to the options of a NATS server, and returns its URL. Its
// address is not told to leaf nodes, so they stay behind the proxy.
func openLeafPort(t *testing.T, o *server.Options) string {
	o.LeafNode.Host, o.LeafNode.Port, o.LeafNode.NoAdvertise = "127.0.0.1", harness.Port(t), true
	return fmt.Sprint("nats://127.0.0.1:", o.LeafNode.Port)
}

// serveJetStream has the bridges of a system serve JetStream's clients, and breaks their leaf node
// connections.
func (r *rig) serveJetStream() {
	r.toLeaf = newProxy(r.t, r.leaf)
	r.faults = append(
		r.faults,
		fault{"leaf connections cut, at any byte or after deliveries were lost", func() {
			if r.random.IntN(2) == 0 {
				r.cutLeaf()
			} else {
				r.loseDeliveries()
			}
		}},
	)
}

// leafURL is where leaf node connections go; "" without the JetStream face.
func (r *rig) leafURL() string {
	if r.toLeaf == nil {
		return ""
	}
	return r.toLeaf.url()
}

// awaitJetStream waits until the face can be reached, if there is one.
func (r *rig) awaitJetStream() {
	if r.toLeaf == nil {
		return
	}
	r.clients[0].insist("JetStream does not answer", func(ctx context.Context) error {
		reply, err := r.clients[0].line.nc.RequestWithContext(ctx, "$JS.pq.API.INFO", nil)
		if err == nil && strings.Contains(string(reply.Data), `"error"`) {
			err = errors.New(string(reply.Data))
		}

		return err
	})
}

// cutLeaf cuts the leaf node connections after some bytes, mostly in the middle of a message.
func (r *rig) cutLeaf() {
	select {
	case <-r.toLeaf.cutAfter(1 + r.random.IntN(4000)):
	case <-time.After(answerTime / 4):
		r.toLeaf.cut()
	}
}

// loseDeliveries drops what bridges deliver, or the pulls and acknowledgements that they would get,
// and then cuts the leaf node connections.
func (r *rig) loseDeliveries() {
	swallowed := r.toLeaf.deafen(r.random.IntN(3) == 0)
	select {
	case <-swallowed:
		r.hold(100 * time.Millisecond)
	case <-time.After(answerTime / 4):
	}

	r.toLeaf.hear()
}

// pullSome has half of the leases of a history be pulls.
func (w *workload) pullSome(op *books.Operation) {
	if !op.Kind.Leases() || w.random.IntN(2) == 0 {
		return
	}

	op.MaxBytes = 0
	pullAs(op, "", int64(pullWait))
}

// pullAs makes a lease a pull of a consumer, "" for the one of its end. Even without expires it may
// get its items in several transactions: after one that failed, the next push has it look for one.
func pullAs(op *books.Operation, consumer string, wait int64) {
	end := "min"
	if op.Kind.Back() {
		end = "max"
	}

	op.JetStream, op.Consumer, op.Wait, op.Spread = true, cmp.Or(consumer, end), wait, true
}

// ackAsJetStream has most acknowledgements of pulled items be JetStream's.
func (w *workload) ackAsJetStream(g *grip, op *books.Operation) {
	op.JetStream = g.subject != "" && !op.Snooze && w.random.IntN(4) > 0
}

// acksTo returns the subject for an operation with the token.
func (g *grip) acksTo(op *books.Operation) string {
	if op.JetStream {
		return g.subject
	}
	return g.AckSubject()
}

// ackAndPull returns the two requests of a +NXT.
func ackAndPull(g *grip, op books.Operation) []pending {
	ack, pull := op, books.Operation{Kind: books.LeaseMin, Queue: op.Queue}
	ack.Kind, ack.MaxBytes = books.Ack, 0

	if g.back {
		pull.Kind = books.LeaseMax
	}

	pullAs(&pull, strings.Split(g.subject, ".")[ackConsumer], g.wait)
	pull.Spread = false // it is one item

	return []pending{
		{op: ack, token: g.subject, silent: true, rides: true},
		{op: pull, token: g.subject},
	}
}

// mayBeSilent reports whether the request may get no answer though nothing is broken.
func (p *pending) mayBeSilent() bool { return p.op.JetStream && !p.op.Kind.Takes() && !p.silent }

// replyTo returns where the answer to a request goes. The items of a pull arrive with the subject
// of the pushes, so only its subscription tells which pull they are of.
func (b *burster) replyTo(r *pending) string {
	inbox := b.inbox + strconv.Itoa(b.sent)
	if !r.op.JetStream || !r.op.Kind.Takes() {
		return inbox
	}

	inbox = b.line.nc.NewInbox()
	s, err := b.line.nc.ChanSubscribe(inbox, b.replies)
	if err == nil { // else the connection is closed
		b.pulls[s] = b.sent
	}

	return inbox
}

// requestOf returns the number of the request that a message answers, or one that there is not.
func (b *burster) requestOf(m *nats.Msg) int {
	if n, ok := b.pulls[m.Sub]; ok {
		return n
	}
	if slices.Contains(b.resting, m.Sub) && isItem(m) {
		b.t.Errorf("delivered after the pull was over: %s", m.Reply)
	}

	n, err := strconv.Atoi(strings.TrimPrefix(m.Subject, b.inbox))
	if err != nil {
		return -1
	}

	return n
}

// isItem reports whether a message is an item that was pulled.
func isItem(m *nats.Msg) bool { return strings.HasPrefix(m.Reply, "$JS.ACK.") }

// dropPulls ends the subscriptions of pulls that nobody waits for any more.
func (b *burster) dropPulls() {
	for s := range b.pulls {
		_ = s.Unsubscribe() // the connection may be closed
		delete(b.pulls, s)
	}
	for len(b.resting) > maxResting {
		_ = b.resting[0].Unsubscribe()
		b.resting = b.resting[1:]
	}
}

// domain returns the JetStream domain of a queue.
func domain(queue string) string {
	if isFIFO(queue) {
		return "q"
	}
	return "pq"
}

// encodePull returns the message of a pull. With the token of a lease it is a +NXT.
func encodePull(r *pending) *nats.Msg {
	op := &r.op
	request := map[string]any{"batch": op.Batch}

	if op.Batch == 0 {
		request["batch"] = 1
	}

	if op.Expires > 0 {
		request["expires"] = op.Expires
	} else {
		request["no_wait"] = true
	}

	if op.MaxBytes > 0 {
		request["max_bytes"] = op.MaxBytes
	}

	data, _ := json.Marshal(request) // of numbers
	if r.token != "" {
		return &nats.Msg{Subject: r.token, Data: append([]byte("+NXT "), data...)}
	}

	return &nats.Msg{
		Subject: fmt.Sprintf("$JS.%s.API.CONSUMER.MSG.NEXT.%s.%s",
			domain(op.Queue), op.Queue, op.Consumer),
		Data: data,
	}
}

// encodeNak returns JetStream's negative acknowledgement.
func encodeNak(op *books.Operation) []byte {
	switch {
	case op.Retry > 0:
		return fmt.Appendf(nil, `-NAK {"retry_delay": %d}`, op.Retry)
	case op.Backoff || op.Delay == 0:
		return []byte("-NAK")
	}
	return fmt.Appendf(nil, `-NAK {"delay": %d}`, op.Delay)
}

// errNotAll: a pull has ended, and not all that was delivered has arrived.
var errNotAll = fmt.Errorf("%w: a delivery is lost", client.ErrUnknownOutcome)

// readPulled reads a message of a pull. It reports whether there are no more.
func (b *burster) readPulled(r *pending, m *nats.Msg) (ended bool, err error) {
	op := &r.op
	if isItem(m) {
		r.bytes += m.Size()
		if op.MaxBytes > 0 && int64(r.bytes) > op.MaxBytes {
			b.t.Errorf("a pull of at most %d bytes got %d", op.MaxBytes, r.bytes)
		}

		err := b.pulled(op, m)
		if len(op.Items) == max(1, op.Batch) {
			b.rest(m.Sub)
		}

		return false, err
	}

	if m.Header.Get("Status") == "100" {
		return false, nil
	}

	b.rest(m.Sub)
	if b.line.nc.Stats().Reconnects != b.reconnects {
		return true, errNotAll
	}

	left, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	if err == nil && left != max(1, op.Batch)-len(op.Items) {
		if b.calm {
			b.t.Errorf("a pull of %d got %d, and %d are said to be missing",
				max(1, op.Batch), len(op.Items), left)
		}
		return true, errNotAll
	}

	return true, endOfPull(op, m.Header.Get("Status"), m.Header.Get("Description"))
}

// rest goes on to listen on inboxes that are no longer used.
func (b *burster) rest(s *nats.Subscription) {
	delete(b.pulls, s)
	b.resting = append(b.resting, s)
}

// endOfPull returns what the status means that ends a pull.
func endOfPull(op *books.Operation, code, text string) error {
	some := len(op.Items) > 0
	op.Text = strings.TrimSpace("pull: " + code + " " + text)

	none := func(err error) error {
		if some {
			return nil
		}
		return err
	}

	switch {
	case code == "404", code == "408" && op.Expires > 0:
		return none(client.ErrEmpty)
	case text == "Message Size Exceeds MaxBytes", text == "Batch Completed":
		op.Cut = some
		return none(client.ErrTooLarge)
	case code == "503", code == "408", text == "Exceeded MaxWaiting", text == "Consumer Deleted":
		op.Cut = some
		return none(client.ErrNoBridge)
	case code == "400":
		return fmt.Errorf("%w: %s %s", client.ErrBadReply, code, text)
	}

	return fmt.Errorf("%w: %s %s", client.ErrUnknownOutcome, code, text)
}

// The subject of JetStream's acknowledgements has ackTokens tokens. These are the ones that tests
// look at, by their place.
const (
	ackTokens     = 12
	ackDomain     = 2
	ackStream     = 4
	ackConsumer   = 5
	ackDeliveries = 6
	ackReceipt    = 11 // the token of the lease
)

// pulled records an item that was pulled.
func (c *caller) pulled(op *books.Operation, m *nats.Msg) error {
	tokens := strings.Split(m.Reply, ".")
	if len(tokens) != ackTokens || tokens[ackDomain] != domain(op.Queue) ||
		tokens[ackStream] != op.Queue || tokens[ackConsumer] != op.Consumer {
		return fmt.Errorf("%w: acknowledgements go to %s", client.ErrBadReply, m.Reply)
	}

	kind := subjects.Priority
	if isFIFO(op.Queue) {
		kind = subjects.FIFO
	}

	info, err := subjects.ParseItemHeaders(m.Header)
	d := c.client.Delivery(bridgeGrammar().Ack(kind, op.Queue, tokens[ackReceipt]))
	d.ItemInfo, d.Value, d.Headers, d.LeaseInfo = info.ItemInfo, m.Data, m.Header, info.Lease

	if delivery := tokens[ackDeliveries]; strconv.FormatInt(info.Lease.Deliveries, 10) != delivery {
		err = errors.Join(err, fmt.Errorf("%w: delivery %s, and %d by the header",
			client.ErrBadReply, delivery, info.Lease.Deliveries))
	}

	if m.Subject != c.subject(op.Queue, subjects.Push) {
		err = errors.Join(err, fmt.Errorf("%w: the subject is %s", client.ErrBadReply, m.Subject))
	}

	if len(op.Items) == max(1, op.Batch) {
		err = errors.Join(err,
			fmt.Errorf("%w: more than the %d items of the pull", client.ErrBadReply, len(op.Items)))
	}

	err = errors.Join(err, c.got(op, d))
	c.fresh[len(c.fresh)-1].subject = m.Reply
	return err
}

// configurePulls sets the length of the leases of pulls, and creates consumers that may have little
// outstanding.
func (b *bank) configurePulls(c *caller) {
	b.pullWait = time.Duration(b.waits) * pullWait
	for _, name := range slices.Concat(b.living(), b.dead) {
		c.insist(fmt.Sprint("setting ", name), func(ctx context.Context) error {
			_, err := queueOf(c.client, name).Configure(ctx, client.Settings{AckWait: b.pullWait})
			return err
		})
	}

	for _, name := range b.full {
		if len(b.faults) == 0 { // else bridges may forget what they have delivered
			b.books.LimitConsumer(name, scarceConsumer, maxScarce*b.bridges)
		}
		c.insist(fmt.Sprint("a consumer of ", name), func(ctx context.Context) error {
			js, err := jetstream.NewWithDomain(c.line.nc, domain(name))
			if err != nil {
				return err
			}

			_, err = js.CreateOrUpdateConsumer(ctx, name, jetstream.ConsumerConfig{
				Durable:       scarceConsumer,
				AckPolicy:     jetstream.AckExplicitPolicy,
				MaxAckPending: maxScarce,
			})

			return err
		})
	}
}

// pullInAccounts has half of the leases of accounts be pulls, some of them of a consumer with few
// places.
func (w *teller) pullInAccounts(op *books.Operation) {
	random := w.workload.random
	if !op.Kind.Leases() || random.IntN(2) > 0 {
		return
	}

	consumer := ""
	if slices.Contains(w.full, op.Queue) && op.Kind == books.LeaseMin && random.IntN(2) == 0 {
		consumer = scarceConsumer
	}

	pullAs(op, consumer, int64(w.pullWait))
}
