package subjects

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/subjects/strictjson"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// Bounds of requests about many items.
const (
	// MaxItems is the most items that an items request returns, and the most ids that a request may
	// name.
	MaxItems = 1000
	// DefaultItems is how many items an items request returns by default.
	DefaultItems = 100
	// MaxValueBytes is the most bytes of each value that a request may ask for.
	MaxValueBytes = 65536
	// DefaultValueBytes is how many bytes of each value are returned by default.
	DefaultValueBytes = 1024
	// NoValues as the ValueBytes of a request asks for items without their values.
	NoValues = -1

	// MaxMatch is the length of the longest text to look for, in bytes.
	MaxMatch = 256
	// MaxMatchHeaders is the most headers that a request may compare.
	MaxMatchHeaders = 16
)

// ItemsOptions is the payload of an items request, a JSON object. All members are optional:
//
//	{"state":"delayed","end":"max","after":"FQEU...","limit":50,"value_bytes":0,
//	 "match":"acme","headers":{"X-Tenant":"acme"},"attempts":true}
type ItemsOptions struct {
	// State is the state of the items; "" means all states.
	State State
	// Max begins at the end of pop.max instead of pop.min. FIFO queues have no such end.
	Max bool
	// After is the Next of the page before: the page begins behind it, whether or not an item is
	// still there; "" begins with the first.
	After string
	// Limit is the most items to return, 1 to MaxItems; 0 means DefaultItems.
	Limit int
	// ValueBytes is how many bytes of each value to return, and of each result, up to
	// MaxValueBytes; 0 means DefaultValueBytes, and NoValues means none. The items say what was
	// cut.
	ValueBytes int
	// Match is a text of up to MaxMatch bytes that the value, a header, the id or the place must
	// contain, in the same case; "" matches all items.
	Match string
	// Headers are the values that headers of the item must have, up to MaxMatchHeaders. If the item
	// has a header several times, one of its values must match.
	Headers map[string]string
	// Attempts asks for the attempts of each item.
	Attempts bool
}

// itemsObject is ItemsOptions as JSON.
type itemsObject struct {
	State      knownState        `json:"state,omitzero"`
	End        queueEnd          `json:"end,omitzero"`
	After      string            `json:"after,omitzero"`
	Limit      int               `json:"limit,omitzero"`
	ValueBytes *int              `json:"value_bytes,omitzero"`
	Match      string            `json:"match,omitzero"`
	Headers    map[string]string `json:"headers,omitempty"`
	Attempts   bool              `json:"attempts,omitzero"`
}

// ParseItemsOptions reads the payload of an items request, which may be empty. It returns the
// defaults for a Limit and ValueBytes that are not given, and NoValues if the request wants 0
// bytes. Errors wrap [ErrOptions].
func ParseItemsOptions(payload []byte) (ItemsOptions, error) {
	o := itemsObject{Limit: DefaultItems}
	if len(payload) > 0 {
		if err := readObject(payload, &o); err != nil {
			return ItemsOptions{}, err
		}
	}
	return ItemsOptions{
		State: State(o.State), Max: o.End == "max", Limit: o.Limit, After: o.After,
		ValueBytes: valueBytes(o.ValueBytes), Match: o.Match, Headers: o.Headers,
		Attempts: o.Attempts,
	}, nil
}

// valueBytes returns the ValueBytes that a member of the JSON means.
func valueBytes(n *int) int {
	switch {
	case n == nil:
		return DefaultValueBytes
	case *n == 0:
		return NoValues
	}
	return *n
}

// wireBytes is the inverse of valueBytes.
func wireBytes(n int) *int {
	switch n {
	case 0:
		return nil
	case NoValues:
		n = 0
	}
	return &n
}

// Encode returns the payload that [ParseItemsOptions] reads.
func (o ItemsOptions) Encode() []byte {
	return strictjson.Marshal(itemsObject{
		State: knownState(o.State), End: endOf(o.Max), After: o.After, Limit: o.Limit,
		ValueBytes: wireBytes(o.ValueBytes), Match: o.Match, Headers: o.Headers,
		Attempts: o.Attempts,
	})
}

func (o *itemsObject) check() error {
	err := cmp.Or(
		within("limit", &o.Limit, 1, MaxItems),
		within("value_bytes", o.ValueBytes, 0, MaxValueBytes),
		checkMatch("match", o.Match),
	)
	if err == nil && len(o.Headers) > MaxMatchHeaders {
		err = fmt.Errorf("headers: %d members: want at most %d", len(o.Headers), MaxMatchHeaders)
	}

	for name, text := range o.Headers {
		valueErr := checkMatch("headers: "+quote(name), text)
		err = cmp.Or(err, checkMatch("headers: a name", name), valueErr)
	}
	return err
}

func checkMatch(what, text string) error {
	if len(text) > MaxMatch {
		return fmt.Errorf("%s: a string of %d bytes: want at most %d", what, len(text), MaxMatch)
	}
	return nil
}

// ItemsPage is the payload of the reply to an items request or, without Next and Scanned, to a get
// of several ids.
type ItemsPage struct {
	// Items are in the order in which they would be served if all were ready.
	Items []StoredItem `json:"items"`
	// Next is the After of the next page, or nil if there are no more items. It is opaque. A page
	// that ends because it has looked at many items may have few items or none.
	Next *string `json:"next"`
	// Scanned is how many items were looked at.
	Scanned int64 `json:"scanned"`
}

// StoredItem is an item that stays in its queue.
type StoredItem struct {
	// ID is the id of the job: it stays the same wherever the item goes. It is "" if only the Place
	// is known, of an item that is damaged or was named so.
	ID string `json:"id"`
	// Place is where the item is now, if that is not its ID. It holds until the item moves.
	Place string `json:"place,omitempty"`
	// Priority is 0 in a FIFO queue.
	Priority int64 `json:"priority"`
	State    State `json:"state,omitempty"`
	// PushedAt is nil for an item that another program wrote to the store.
	PushedAt *time.Time `json:"pushed_at,omitempty"`
	// Due is when the lease or the delay ends, or nil for a ready item.
	Due *time.Time `json:"due,omitempty"`
	// LeasedAt is when the lease began, or nil unless the item is leased. Without a Holder it is
	// when the lease was last renewed.
	LeasedAt *time.Time `json:"leased_at,omitempty"`
	// Holder is the name that the lease was taken with, "" without one: see [PopOptions].
	Holder string `json:"holder,omitempty"`
	// Progress is what the holder has said last of the job, in Base64 in the JSON; nil for nothing.
	Progress []byte `json:"progress,omitempty"`
	// Expires is when the item expires, or nil if it does not.
	Expires *time.Time `json:"expires,omitempty"`
	// Deliveries is how often the item was delivered.
	Deliveries int64 `json:"deliveries"`
	// Reason comes from the last negative acknowledgement that gave one, or else says why the item
	// is a dead letter.
	Reason string `json:"reason,omitempty"`
	// Size is the number of bytes of the value.
	Size int `json:"size"`
	// Headers are as a get returns them, except headers that other members stand for. Bytes that
	// are not UTF-8 are replaced.
	Headers map[string][]string `json:"headers,omitempty"`
	// HeadersCut means that the reply had no room for the headers.
	HeadersCut bool `json:"headers_cut,omitzero"`
	// Value is the start of the value, in Base64 in the JSON.
	Value []byte `json:"value"`
	// ValueCut means that the value is longer.
	ValueCut bool `json:"value_cut,omitzero"`

	// Attempts are the attempts of the job that have ended, oldest first, if the request asked for
	// them and the setting trail keeps them.
	Attempts []trail.Attempt `json:"attempts,omitempty"`
	// Successors are what the acknowledgement of a job in StateDone has pushed, as far as they are
	// named, and MoreSuccessors how many more there were.
	Successors     []trail.Job `json:"successors,omitempty"`
	MoreSuccessors int         `json:"more_successors,omitzero"`

	// Done is for a job in StateDone, nil for all others.
	*Done

	// Failure says why there is no item for this id.
	Failure
}

// Done is what a page says of a job that is done, besides what it says of any item. Its LeasedAt is
// when its last lease began, nil if that is not known.
type Done struct {
	// FinishedAt is when the job was acknowledged, and KeptUntil until when it is kept.
	FinishedAt time.Time `json:"finished_at"`
	KeptUntil  time.Time `json:"kept_until"`
	// ResultSize is the number of bytes of the result, nil if there is none, and ContentType its
	// type, if it has one.
	ResultSize  *int   `json:"result_size,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	// Result is the start of the result, in Base64 in the JSON, and ResultCut means that it is
	// longer.
	Result    []byte `json:"result,omitempty"`
	ResultCut bool   `json:"result_cut,omitzero"`
	// ValueDropped means that the value was not kept.
	ValueDropped bool `json:"value_dropped,omitzero"`
}

// ItemResults is the payload of the reply to a remove, move, redrive or release of several ids.
type ItemResults struct {
	Queue string `json:"queue"`
	// Results are in the order of the ids.
	Results []ItemResult `json:"results"`
}

// ItemResult is the result for one of several ids.
type ItemResult struct {
	// ID is the id of the job; after a failure, what the request named as one.
	ID string `json:"id,omitempty"`
	// Place is where a moved or redriven item is now; after a failure, what the request named as
	// one.
	Place string `json:"place,omitempty"`
	// Home is the queue that a dead letter went back to.
	Home string `json:"home,omitempty"`
	Failure
}

// Encode returns the JSON.
func (p *ItemsPage) Encode() []byte {
	items := make([][]byte, len(p.Items))
	for i := range p.Items {
		items[i] = p.Items[i].Encode()
	}
	return EncodeItemsPage(items, p.Next, p.Scanned)
}

// Encode returns the JSON of an item, for [EncodeItemsPage].
func (i *StoredItem) Encode() []byte { return strictjson.Marshal(i) }

// Parent returns the job whose acknowledgement has pushed the item, nil if that is not known.
func (i *StoredItem) Parent() *trail.Job {
	var h ItemHeaders
	for _, value := range i.Headers[HeaderParent] {
		_ = h.Set(HeaderParent, value)
	}
	return h.Parent
}

// ItemsPageSize is the most bytes of the JSON of a page without its items and the commas between
// them.
const ItemsPageSize = 256

// EncodeItemsPage is [ItemsPage.Encode] for items that are already encoded.
func EncodeItemsPage(items [][]byte, next *string, scanned int64) []byte {
	payload := append([]byte(`{"items":[`), bytes.Join(items, []byte{','})...)
	payload = append(append(payload, `],"next":`...), strictjson.Marshal(next)...)
	return append(strconv.AppendInt(append(payload, `,"scanned":`...), scanned, 10), '}')
}

// MaxItemResults is the most bytes of the JSON of an ItemResults with n results, if the texts of
// its failures have up to MaxFailureText bytes.
func MaxItemResults(n int) int {
	const result, ends = 512, 256
	return n*result + ends
}

// MaxFailureText is the length of the longest text of a Failure, in bytes.
const MaxFailureText = 200

// ItemOptions is the payload of a get, remove, rank, move, release or redrive, a JSON object. All
// but a redrive name an item by an id or a place, and all but a rank may name several. A get may
// have a message id instead. A redrive without names says how many dead letters to send back:
//
//	{"id":"FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo"}
//	{"place":"FQUBAAZgsSk-WP2dUQEwPdUmVNcIYVo"}
//	{"ids":["FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo"],"priority":5}
//	{"places":["FQUBAAZgsSk-WP2dUQEwPdUmVNcIYVo"]}
//	{"msg_id":"invoice-17"}
//	{"max":50}
type ItemOptions struct {
	// ID is the id of a job. It leads to wherever the job is now.
	ID string
	// IDs are 1 to MaxItems of these in place of ID, each once; nil means ID.
	IDs []string
	// AtPlace says that ID or IDs are places. A place leads nowhere else: see fdbpq.Op.AtPlace.
	AtPlace bool
	// MsgID is the message id of a push, 1 to MaxKey bytes, for a get in place of ID; "" means ID.
	MsgID string
	// Max makes a rank count from the end of pop.max.
	Max bool
	// Priority is the new priority of a move.
	Priority int64
	// State is the state of the items that a remove removes; "" means any but StateDone.
	State State
	// ValueBytes is for a get of several ids, as in ItemsOptions; it is 0 for all other requests.
	ValueBytes int
	// Frames is for a get, as in [PopOptions]; with IDs it changes nothing.
	Frames bool
	// Most is how many items a redrive without IDs sends back, up to MaxRedrive; 0 means
	// DefaultRedrive.
	Most int
}

// itemObject is ItemOptions as JSON. It knows the members that the verb takes.
type itemObject struct {
	verb Verb

	ID         *string    `json:"id,omitzero"`
	Place      *string    `json:"place,omitzero"`
	IDs        texts      `json:"ids,omitzero"`
	Places     texts      `json:"places,omitzero"`
	MsgID      *string    `json:"msg_id,omitzero"`
	End        queueEnd   `json:"end,omitzero"`
	Priority   *int64     `json:"priority,omitzero"`
	State      knownState `json:"state,omitzero"`
	ValueBytes *int       `json:"value_bytes,omitzero"`
	Frames     *bool      `json:"frames,omitzero"`
	Most       *int       `json:"max,omitzero"`
}

// ParseItemOptions reads the payload of a get, remove, rank, move, release or redrive; only a
// redrive may have an empty one. It returns the defaults for a ValueBytes and Most that are not
// given, and NoValues if the request wants 0 bytes. Errors wrap [ErrOptions].
func ParseItemOptions(v Verb, payload []byte) (ItemOptions, error) {
	// A redrive may say nothing: then it sends back DefaultRedrive items.
	wire := itemObject{verb: v}
	if v != Redrive || len(payload) > 0 {
		if err := readObject(payload, &wire); err != nil {
			return ItemOptions{}, err
		}
	}

	o := ItemOptions{ID: deref(wire.ID), IDs: wire.IDs, MsgID: deref(wire.MsgID)}
	if o.AtPlace = wire.Place != nil || wire.Places != nil; o.AtPlace {
		o.ID, o.IDs = deref(wire.Place), wire.Places
	}
	o.Max = wire.End == "max"
	o.Priority, o.State, o.Frames = deref(wire.Priority), State(wire.State), deref(wire.Frames)
	if v == Get && o.IDs != nil {
		o.ValueBytes = valueBytes(wire.ValueBytes)
	}
	if v == Redrive && o.IDs == nil {
		o.Most = cmp.Or(deref(wire.Most), DefaultRedrive)
	}
	return o, nil
}

// itemMember is a member of an itemObject: whether the request has it, and whether the verb takes
// it.
type itemMember struct {
	name         string
	given, known bool
}

// members returns the members. Of the first naming ones a request has one.
func (o *itemObject) members() []itemMember {
	v := o.verb
	return []itemMember{
		{"id", o.ID != nil, v != Redrive},
		{"place", o.Place != nil, v != Redrive},
		{"ids", o.IDs != nil, v != Rank},
		{"places", o.Places != nil, v != Rank},
		{"msg_id", o.MsgID != nil, v == Get},
		{"max", o.Most != nil, v == Redrive},
		{"end", o.End != "", v == Rank},
		{"priority", o.Priority != nil, v == Move},
		{"state", o.State != "", v == Remove},
		{"value_bytes", o.ValueBytes != nil, v == Get},
		{"frames", o.Frames != nil, v == Get},
	}
}

const naming = 6

// Want says what the verb takes.
func (o *itemObject) Want() string {
	var names []string
	for _, m := range o.members() {
		if m.known {
			names = append(names, m.name)
		}
	}
	return "a JSON object with members of " + strings.Join(names, ", ")
}

// check returns an error if the verb lacks a member, or members do not go together or are out of
// bounds.
func (o *itemObject) check() error {
	var names []string
	for i, m := range o.members() {
		switch {
		case m.given && !m.known:
			return fmt.Errorf("unknown member %q: want %s", m.name, o.Want())
		case m.given && i < naming:
			names = append(names, m.name)
		}
	}

	list, of := o.IDs, "ids"
	if o.Places != nil {
		list, of = o.Places, "places"
	}
	switch {
	case len(names) > 1:
		return fmt.Errorf("%s: want one of them", strings.Join(names, " and "))
	case len(names) == 0 && o.verb != Redrive:
		return errNoID
	case o.MsgID != nil:
		if n := len(*o.MsgID); n == 0 || n > MaxKey {
			return fmt.Errorf("msg_id: %d bytes: want 1 to %d", n, MaxKey)
		}
	case list != nil && len(list) == 0:
		return fmt.Errorf(`no %s: want {"%s":["..."]}, as pushes, pops or items returned them`,
			of, of)
	case o.verb == Move && o.Priority == nil:
		return errNoPriority
	}
	if list == nil && o.ValueBytes != nil {
		return errOnlyWithIDs
	}

	err := cmp.Or(
		list.atMost(of, MaxItems),
		within("max", o.Most, 1, MaxRedrive),
		within("value_bytes", o.ValueBytes, 0, MaxValueBytes),
	)

	// With an id twice, two results would be about one item.
	places := make(map[string]int, min(len(list), MaxItems))
	for i := 0; err == nil && i < len(list); i++ {
		if other, again := places[list[i]]; again {
			err = fmt.Errorf("%s: elements %d and %d are the same: want each once", of, other, i)
		}
		places[list[i]] = i
	}
	return err
}

// Encode returns the payload that [ParseItemOptions] reads for a verb.
func (o ItemOptions) Encode(v Verb) []byte {
	wire := itemObject{End: endOf(o.Max), ValueBytes: wireBytes(o.ValueBytes)}
	wire.State = knownState(o.State)
	id, ids := &wire.ID, &wire.IDs
	if o.AtPlace {
		id, ids = &wire.Place, &wire.Places
	}
	*ids = o.IDs
	switch {
	case o.MsgID != "":
		wire.MsgID = &o.MsgID
	case o.IDs == nil && v != Redrive:
		*id = &o.ID
	}
	if v == Move {
		wire.Priority = &o.Priority
	}
	if o.Most != 0 {
		wire.Most = &o.Most
	}
	if o.Frames {
		wire.Frames = &o.Frames
	}
	return strictjson.Marshal(wire)
}
