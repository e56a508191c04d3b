package godriver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// command is a line of the input, with the members of all operations.
type command struct {
	N      int      `json:"n"`
	Op     string   `json:"op"`
	Queue  string   `json:"queue"`
	Queues []string `json:"queues"`
	FIFO   bool     `json:"fifo"`
	Items  []push   `json:"items"`

	push

	Max     maximum  `json:"max"`
	Expires duration `json:"expires"`
	Count   *int     `json:"count,string"`
	Peek    bool     `json:"peek"`
	AckWait duration `json:"ackWait"`
	Holder  string   `json:"holder"`

	Lease      string   `json:"lease"`
	Leases     []string `json:"leases"`
	How        string   `json:"how"`
	Result     *value   `json:"result"`
	Reason     string   `json:"reason"`
	RetryDelay duration `json:"retryDelay"`
	Progress   string   `json:"progress"`
	Next       []struct {
		Queue    string `json:"queue"`
		Value    value  `json:"value"`
		Priority int64  `json:"priority,string"`
	} `json:"next"`

	What     string          `json:"what"`
	State    client.State    `json:"state"`
	Match    string          `json:"match"`
	ID       string          `json:"id"`
	IDs      []string        `json:"ids"`
	Place    *string         `json:"place"`
	Places   []string        `json:"places"`
	Name     string          `json:"name"`
	Settings json.RawMessage `json:"settings"`
	Schedule json.RawMessage `json:"schedule"`

	Wait        duration `json:"wait"`
	Follow      bool     `json:"follow"`
	Worker      string   `json:"worker"`
	Concurrency int      `json:"concurrency,string"`
	JobTimeout  duration `json:"jobTimeout"`
	Types       []string `json:"types"`
	Timeout     duration `json:"timeout"`
	Open        duration `json:"open"`
}

// value is bytes; nil is none, which is not the same as no bytes for a result.
type value = []byte

// duration is a duration as text.
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

// maximum is true for the other end of a queue, or how many dead letters are sent back.
type maximum struct {
	end bool
	n   int
}

func (m *maximum) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("true")) {
		m.end = true
		return nil
	}
	return json.Unmarshal(bytes.Trim(data, `"`), &m.n)
}

// push has the members that say what to push and how.
type push struct {
	Value    value     `json:"value"`
	Priority int64     `json:"priority,string"`
	MsgID    *string   `json:"msgId"`
	Unique   *string   `json:"unique"`
	Delay    *duration `json:"delay"`
	At       string    `json:"at"`
	TTL      *duration `json:"ttl"`
	Group    *string   `json:"group"`
	Weight   *int      `json:"weight,string"`
	Keep     *duration `json:"keep"`
	Headers  []header  `json:"headers"`
	Type     *string   `json:"type"`
	Join     *duration `json:"join"`
	Joiner   string    `json:"joiner"`
}

// header is a pair of a name and a value.
type header struct{ name, value string }

// oddValue is a value that is not UTF-8.
type oddValue struct {
	Base64 []byte `json:"base64"`
}

func (h *header) UnmarshalJSON(data []byte) error {
	var value json.RawMessage
	if err := json.Unmarshal(data, &[]any{&h.name, &value}); err != nil {
		return err
	}
	if bytes.HasPrefix(value, []byte("{")) {
		var odd oddValue
		err := json.Unmarshal(value, &odd)
		h.value = string(odd.Base64)
		return err
	}
	return json.Unmarshal(value, &h.value)
}

func (h header) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(h.value) {
		return json.Marshal([]string{h.name, h.value})
	}
	return json.Marshal([]any{h.name, oddValue{[]byte(h.value)}})
}

// message returns what to push.
func (p push) message() (client.Message, error) {
	m := client.Message{Value: p.Value, Headers: map[string][]string{}}
	for _, h := range p.Headers {
		m.Headers[h.name] = append(m.Headers[h.name], h.value)
	}

	var options []client.PushOption
	texts := func(given *string, option func(string) client.PushOption) {
		if given != nil {
			options = append(options, option(*given))
		}
	}
	durations := func(given *duration, option func(time.Duration) client.PushOption) {
		if given != nil {
			options = append(options, option(time.Duration(*given)))
		}
	}
	texts(p.MsgID, client.MsgID)
	texts(p.Unique, client.Unique)
	texts(p.Group, client.Group)
	texts(p.Type, client.Type)
	durations(p.Delay, client.Delay)
	durations(p.TTL, client.TTL)
	durations(p.Keep, client.Keep)
	durations(p.Join, client.Join)
	if p.Weight != nil {
		options = append(options, client.Weight(*p.Weight))
	}

	if p.At != "" {
		at, err := time.Parse(time.RFC3339, p.At)
		if err != nil {
			return m, err
		}
		options = append(options, client.At(at))
	}
	return m.With(options...), nil
}

// queue returns the queue that the command is about.
func (c *command) queue(d *driver) *client.Queue { return c.named(d, c.Queue) }

func (c *command) named(d *driver, name string) *client.Queue {
	if c.FIFO {
		return d.client.FIFOQueue(name)
	}
	return d.client.PriorityQueue(name)
}

// run carries out the command and returns what it answers.
func (c *command) run(ctx context.Context, d *driver) (any, error) {
	operations := map[string]func(context.Context, *driver) (any, error){
		"push": c.runPush, "pushMany": c.runPushMany, "pop": c.runPop, "lease": c.runLease,
		"all": c.runAll, "open": c.runOpen, "close": c.runClose,
		"settle": c.runSettle, "ackAll": c.runAckAll, "look": c.runLook, "manage": c.runManage,
		"result": c.runResult, "call": c.runCall, "work": c.runWork, "stop": c.runStop,
	}

	run, found := operations[c.Op]
	if !found {
		return nil, fmt.Errorf("%w: op %q", errUnsupported, c.Op)
	}
	return run(ctx, d)
}

func (c *command) runPush(ctx context.Context, d *driver) (any, error) {
	m, err := c.message()
	if err != nil {
		return nil, err
	}

	if c.Joiner != "" {
		m = m.With(client.Joiner(client.JoinerRef{Queue: c.Queue, ID: c.Joiner}))
	}
	ack, err := c.queue(d).PushMsg(ctx, c.Priority, m)
	return object{"id": ack.ID, "priority": text(ack.Priority), "duplicate": ack.Duplicate}, err
}

// items returns what a command pushes at once.
func (c *command) items() (items []client.PushItem, err error) {
	for _, p := range c.Items {
		m, err := p.message()
		if err != nil {
			return nil, err
		}
		items = append(items, client.PushItem{Priority: p.Priority, Message: m})
	}
	return items, nil
}

func (c *command) runPushMany(ctx context.Context, d *driver) (any, error) {
	items, err := c.items()
	if err != nil {
		return nil, err
	}

	answer := []object{}
	results, _ := c.queue(d).PushMany(ctx, items) // the error is in the results
	for _, r := range results {
		o := object{"id": r.ID, "duplicate": r.Duplicate}
		if r.Err != nil {
			o = object{"error": errorObject(r.Err)}
		}
		answer = append(answer, o)
	}
	return answer, nil
}

func (c *command) runAll(ctx context.Context, d *driver) (any, error) {
	items, err := c.items()
	if err != nil {
		return nil, err
	}

	joiner, members, err := c.queue(d).All(ctx, items[0], items[1:]...)
	answer := []object{}
	for _, ack := range append([]client.PushAck{joiner}, members...) {
		answer = append(answer, object{"id": ack.ID, "duplicate": ack.Duplicate})
	}
	return answer, err
}

func (c *command) runOpen(ctx context.Context, d *driver) (any, error) {
	m, err := c.message()
	if err != nil {
		return nil, err
	}

	join, err := c.queue(d).OpenJoin(ctx, time.Duration(c.Open), c.Priority, m)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.joins[join.ID] = join
	return object{"id": join.ID}, nil
}

func (c *command) runClose(ctx context.Context, d *driver) (any, error) {
	d.mu.Lock()
	join := d.joins[c.ID]
	d.mu.Unlock()
	return nil, join.Close(ctx)
}

func (c *command) runPop(ctx context.Context, d *driver) (any, error) {
	q, expires := c.queue(d), client.Expires(time.Duration(c.Expires))
	pop, popBatch, peek := q.Pop, q.PopBatch, q.Peek
	if c.Max.end {
		pop, popBatch, peek = q.PopMax, q.PopMaxBatch, q.PeekMax
	}

	switch {
	case c.Count != nil:
		items, err := popBatch(ctx, *c.Count, expires)
		answer := []object{}
		for _, i := range items {
			answer = append(answer, itemObject(i))
		}
		return answer, notEmpty(err)
	case c.Peek:
		return orNull(peek(ctx))
	}
	return orNull(pop(ctx, expires))
}

// notEmpty drops the error of an empty queue.
func notEmpty(err error) error {
	if errors.Is(err, client.ErrEmpty) {
		return nil
	}
	return err
}

func orNull(i *client.Item, err error) (any, error) {
	if i == nil {
		return nil, notEmpty(err)
	}
	return itemObject(i), err
}

func itemObject(i *client.Item) object {
	headers := []header{}
	for name, values := range i.Headers {
		for _, value := range values {
			headers = append(headers, header{name, value})
		}
	}
	return object{
		"id":       i.ID,
		"priority": text(i.Priority),
		"value":    bytesOf(i.Value),
		"headers":  headers,
		"group":    i.Group,
	}
}

// bytesOf never returns nil, which JSON has as null.
func bytesOf(value []byte) []byte { return append([]byte{}, value...) }

func text(n int64) string { return fmt.Sprint(n) }

func (c *command) runLease(ctx context.Context, d *driver) (any, error) {
	q := c.queue(d)
	lease, leaseBatch := q.Lease, q.LeaseBatch
	if c.Max.end {
		lease, leaseBatch = q.LeaseMax, q.LeaseMaxBatch
	}

	options := []client.LeaseOption{
		client.AckWait(time.Duration(c.AckWait)),
		client.Holder(c.Holder),
		client.Expires(time.Duration(c.Expires)),
	}
	if c.Count != nil {
		deliveries, err := leaseBatch(ctx, *c.Count, options...)
		answer := []object{}
		for _, delivery := range deliveries {
			answer = append(answer, d.leased(delivery))
		}
		return answer, notEmpty(err)
	}

	delivery, err := lease(ctx, options...)
	if err != nil {
		return nil, notEmpty(err)
	}
	return d.leased(delivery), nil
}

// leased gives a lease a name, and returns what the answer says of it.
func (d *driver) leased(delivery *client.Delivery) object {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := fmt.Sprint(len(d.leases) + 1)
	d.leases[name] = delivery

	o := itemObject(&delivery.Item)
	o["lease"], o["deliveries"] = name, text(delivery.Deliveries)
	return o
}

// lease returns the lease with a name.
func (d *driver) lease(name string) (*client.Delivery, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delivery, found := d.leases[name]
	if !found {
		return nil, fmt.Errorf("no lease %q", name)
	}
	return delivery, nil
}

func (c *command) runAckAll(ctx context.Context, d *driver) (any, error) {
	var deliveries []*client.Delivery
	for _, name := range c.Leases {
		delivery, err := d.lease(name)
		if err != nil {
			return nil, err
		}
		deliveries = append(deliveries, delivery)
	}

	answer := make([]any, len(deliveries))
	for i, err := range d.client.AckAll(ctx, deliveries...) {
		if err != nil {
			answer[i] = object{"error": errorObject(err)}
		}
	}
	return answer, nil
}

func (c *command) runSettle(ctx context.Context, d *driver) (any, error) {
	delivery, err := d.lease(c.Lease)
	if err != nil {
		return nil, err
	}

	delay, hasDelay := time.Duration(0), c.Delay != nil
	if hasDelay {
		delay = time.Duration(*c.Delay)
	}
	switch c.How {
	case "ack":
		if c.Result != nil {
			delivery.SetResult(*c.Result, "")
		}
		for _, n := range c.Next {
			if err := delivery.Then(n.Queue, n.Priority, n.Value); err != nil {
				return nil, err
			}
		}
		return nil, delivery.Ack(ctx)
	case "nak":
		if !hasDelay {
			delay = client.Backoff
		}
		retry := client.RetryDelay(time.Duration(c.RetryDelay))
		return nil, delivery.Nak(ctx, delay, retry, client.Reason(c.Reason))
	case "snooze":
		return nil, delivery.Snooze(ctx, delay)
	case "term":
		return nil, delivery.Term(ctx, c.Reason)
	case "extend":
		extend := delivery.Extend
		if c.Progress != "" {
			extend = func(ctx context.Context) (time.Time, error) {
				return delivery.Progress(ctx, []byte(c.Progress))
			}
		}
		_, err := extend(ctx)
		return nil, err
	}
	return nil, fmt.Errorf("%w: how %q", errUnsupported, c.How)
}

func (c *command) runResult(ctx context.Context, d *driver) (any, error) {
	q, wait := c.queue(d), client.Wait(time.Duration(c.Wait))
	result, by := q.Result, c.ID
	if c.MsgID != nil {
		result, by = q.ResultByMsgID, *c.MsgID
	}

	options := []client.ResultOption{wait}
	if c.Follow {
		options = append(options, client.Follow())
	}
	r, err := result(ctx, by, options...)
	if err != nil {
		return nil, err
	}

	o := object{"state": r.State, "value": nil, "error": "", "reason": "", "progress": nil}
	if r.HasResult {
		o["value"] = bytesOf(r.Value)
	}
	if r.Progress != nil {
		o["progress"] = r.Progress
	}
	if r.DeadLetter != nil {
		o["error"], o["reason"] = r.DeadLetter.Error, r.DeadLetter.Reason
	}
	return o, nil
}

func (c *command) runCall(ctx context.Context, d *driver) (any, error) {
	m, err := c.message()
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, cmp.Or(time.Duration(c.Wait), math.MaxInt64))
	defer cancel()
	r, err := c.queue(d).CallMsg(ctx, c.Priority, m)
	return bytesOf(r.Value), err
}

// numbersAsText returns JSON as an answer has it.
func numbersAsText(data []byte) (any, error) {
	var v any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	err := decoder.Decode(&v)
	return textOf(v), err
}

func textOf(v any) any {
	switch v := v.(type) {
	case json.Number:
		return v.String()
	case []any:
		for i := range v {
			v[i] = textOf(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = textOf(v[name])
		}
	}
	return v
}

// asText is numbersAsText of what JSON can have.
func asText(v any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return numbersAsText(data)
}

func settingsAsText(s client.Settings, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return numbersAsText(subjects.EncodeSettings(&s))
}
