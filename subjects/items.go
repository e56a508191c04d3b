package subjects

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Bounds of requests about many items.
const (
	// MaxItems is the most items that an items request returns, and the most ids that a request names.
	MaxItems = 1000
	// DefaultItems is how many items an items request returns unless it says.
	DefaultItems = 100
	// MaxValueBytes is the most bytes of each value that a request can ask for.
	MaxValueBytes = 65536
	// DefaultValueBytes is how many bytes of each value come unless the request says.
	DefaultValueBytes = 1024
	// NoValues as the ValueBytes of a request asks for items without their values.
	NoValues = -1

	// MaxMatch is the longest text, in bytes, to look for.
	MaxMatch = 256
	// MaxMatchHeaders is the most headers that a request can want of items.
	MaxMatchHeaders = 16
)

// ItemsOptions is the payload of an items request, a JSON object. All members are optional:
//
//	{"state":"delayed","end":"max","after":"FQEU...","limit":50,"value_bytes":0,
//	 "match":"acme","headers":{"X-Tenant":"acme"}}
type ItemsOptions struct {
	// State is that of the items; "" means all states.
	State State
	// Max begins at the end of pop.max. FIFO queues have only the other.
	Max bool
	// After is the id that the items come after, whether it is still there or not; "" for the first.
	After string
	// Limit is the most items to return, 1 to MaxItems; 0 means DefaultItems.
	Limit int
	// ValueBytes is how many bytes of each value to return, up to MaxValueBytes; 0 means
	// DefaultValueBytes, and NoValues none.
	ValueBytes int
	// Match is a text, up to MaxMatch bytes, that the value, a header or the id must contain; ""
	// means any. Upper and lower case differ.
	Match string
	// Headers are what headers of the item must say, up to MaxMatchHeaders of them. A header that the
	// item has more than once must say it once.
	Headers map[string]string
}

// ParseItemsOptions reads the payload of an items request. Limit and ValueBytes are what they mean:
// never 0, and NoValues for none. Errors wrap ErrOptions.
func ParseItemsOptions(payload []byte) (o ItemsOptions, err error) {
	var hasLimit, hasBytes bool
	if len(payload) > 0 {
		err = o.members(&hasLimit, &hasBytes).parse(payload)
	}
	if err != nil {
		return ItemsOptions{}, err
	}
	o.Limit = cmp.Or(o.Limit, DefaultItems)
	o.ValueBytes = valueBytes(o.ValueBytes, hasBytes)
	return o, nil
}

// valueBytes returns what a ValueBytes of the wire means.
func valueBytes(n int, given bool) int {
	switch {
	case !given:
		return DefaultValueBytes
	case n == 0:
		return NoValues
	}
	return n
}

// Encode returns the payload that ParseItemsOptions reads.
func (o ItemsOptions) Encode() []byte {
	hasLimit, hasBytes := o.Limit != 0, o.ValueBytes != 0
	if o.ValueBytes == NoValues {
		o.ValueBytes = 0
	}
	return o.members(&hasLimit, &hasBytes).encode()
}

func (o *ItemsOptions) members(hasLimit, hasBytes *bool) members {
	return append(o.State.members(),
		member{name: "end", to: (*isMax)(&o.Max)},
		member{name: "after", to: &o.After},
		member{name: "limit", to: &o.Limit, given: hasLimit, least: 1, most: MaxItems},
		member{name: "value_bytes", to: &o.ValueBytes, given: hasBytes, most: MaxValueBytes},
		member{name: "match", to: &o.Match, check: checkMatch},
		member{name: "headers", to: &o.Headers, length: MaxMatchHeaders, check: checkMatch},
	)
}

func checkMatch(text string) error {
	if len(text) > MaxMatch {
		return fmt.Errorf("a text of %d bytes: want at most %d", len(text), MaxMatch)
	}
	return nil
}

// ItemsPage is the payload of the reply to an items request, and without Next and Scanned of the
// reply to a get of several ids.
type ItemsPage struct {
	// Items are in the order in which they would be served if all were ready.
	Items []StoredItem `json:"items"`
	// Next is the After of the next page, nil if there are no more items. A page that ends early,
	// because much was looked at, may have few items or none.
	Next *string `json:"next"`
	// Scanned is how many items were looked at.
	Scanned int64 `json:"scanned"`
}

// StoredItem is an item that stays in its queue.
type StoredItem struct {
	ID string `json:"id"`
	// Priority is 0 in a FIFO queue.
	Priority int64 `json:"priority"`
	State    State `json:"state,omitempty"`
	// PushedAt is nil for items that other programs wrote.
	PushedAt *time.Time `json:"pushed_at,omitempty"`
	// Due is when the lease or the delay is over, nil for a ready item.
	Due *time.Time `json:"due,omitempty"`
	// Expires is when the item expires, nil if it does not.
	Expires *time.Time `json:"expires,omitempty"`
	// Deliveries is how many deliveries it has had.
	Deliveries int64 `json:"deliveries"`
	// Reason is that of the last negative acknowledgement that gave one or, without, why it is a dead
	// letter.
	Reason string `json:"reason,omitempty"`
	// Size is the number of bytes of the value.
	Size int `json:"size"`
	// Headers are those with which a get returns the item, without the ones that other members stand
	// for. Bytes that are not UTF-8 are replaced.
	Headers map[string][]string `json:"headers,omitempty"`
	// HeadersCut says that the headers left no room in the reply.
	HeadersCut bool `json:"headers_cut,omitempty"`
	// Value is the beginning of the value, base64 in the JSON.
	Value []byte `json:"value"`
	// ValueCut says that the value is longer.
	ValueCut bool `json:"value_cut,omitempty"`

	// Failure says why there is no item, for one of several ids.
	Failure
}

// Failure is the error of one of several ids; zero if it succeeded.
type Failure struct {
	Code Code   `json:"code,omitempty"`
	Text string `json:"error,omitempty"`
}

// ItemResults is the payload of the reply to a remove, move, redrive or release of several ids.
type ItemResults struct {
	Queue string `json:"queue"`
	// Results are in the order of the ids.
	Results []ItemResult `json:"results"`
}

// ItemResult is the result for one of several ids.
type ItemResult struct {
	ID string `json:"id"`
	// NewID is the id that a moved or redriven item has now.
	NewID string `json:"new_id,omitempty"`
	// Home is the queue that a dead letter was sent back to.
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

// Encode returns the JSON of an item, for EncodeItemsPage.
func (i *StoredItem) Encode() []byte {
	item, _ := json.Marshal(i) // never returns an error for this type
	return item
}

// ItemsPageSize is the most bytes that a page takes beside its items and the commas between them.
const ItemsPageSize = 256

// EncodeItemsPage is ItemsPage.Encode for items that are encoded already.
func EncodeItemsPage(items [][]byte, next *string, scanned int64) []byte {
	payload := append([]byte(`{"items":[`), bytes.Join(items, []byte{','})...)
	end, _ := json.Marshal(next) // never returns an error for this type
	payload = append(append(payload, `],"next":`...), end...)
	return append(strconv.AppendInt(append(payload, `,"scanned":`...), scanned, 10), '}')
}

// MaxItemResults is the most bytes that an ItemResults of n results takes, whose texts have up to
// MaxFailureText bytes.
func MaxItemResults(n int) int {
	const result, ends = 512, 256
	return n*result + ends
}

// MaxFailureText is the longest text of a Failure.
const MaxFailureText = 200

// Encode returns the JSON.
func (r *ItemResults) Encode() []byte {
	payload, _ := json.Marshal(r) // never returns an error for these types
	return payload
}

// ParseItemsPage reads what ItemsPage.Encode wrote. It ignores members that it does not know.
func ParseItemsPage(payload []byte) (ItemsPage, error) { return parseReply[ItemsPage](payload) }

// ParseItemResults reads what ItemResults.Encode wrote. It ignores members that it does not know.
func ParseItemResults(payload []byte) (ItemResults, error) { return parseReply[ItemResults](payload) }

// ItemOptions is the payload of a get, remove, rank, move, release or redrive, a JSON object with one
// id, or several unless it is a rank. A redrive has several, or how many items it is for:
//
//	{"id":"FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo"}
//	{"ids":["FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo"],"priority":5}
//	{"max":50}
type ItemOptions struct {
	ID string
	// IDs are 1 to MaxItems ids in place of ID, each once. nil means ID.
	IDs []string
	// Max says that a rank counts from the end of pop.max.
	Max bool
	// Priority is that to which a move moves the items.
	Priority int64
	// ValueBytes is for a get of several ids, as in ItemsOptions; 0 for all others.
	ValueBytes int
	// Most is how many items a redrive without IDs sends home, up to MaxRedrive; 0 means
	// DefaultRedrive.
	Most int
}

// ParseItemOptions reads the payload of a get, remove, rank, move, release or redrive. ValueBytes is
// what it means, as ParseItemsOptions returns it, and so is Most. Errors wrap ErrOptions.
func ParseItemOptions(v Verb, payload []byte) (o ItemOptions, err error) {
	var has itemMembers
	if v != Redrive || len(payload) > 0 {
		err = o.members(v, &has).parse(payload)
	}
	if err != nil {
		return ItemOptions{}, err
	}

	if err := o.check(v, &has); err != nil {
		return ItemOptions{}, fmt.Errorf("%w: %s: %w", ErrOptions, shown(payload), err)
	}
	if v == Get && has.ids {
		o.ValueBytes = valueBytes(o.ValueBytes, has.valueBytes)
	}
	if v == Redrive && !has.ids {
		o.Most = cmp.Or(o.Most, DefaultRedrive)
	}
	return o, nil
}

// itemMembers says which members an object has.
type itemMembers struct{ id, ids, priority, valueBytes, most bool }

// check returns what is wrong with the members as a whole.
func (o *ItemOptions) check(v Verb, has *itemMembers) error {
	switch {
	case has.id && has.ids:
		return errBothIDs
	case has.ids && has.most:
		return errBothRedrives
	case !has.id && !has.ids && v != Redrive:
		return errNoID
	case has.ids && len(o.IDs) == 0:
		return errNoIDs
	case v == Move && !has.priority:
		return errNoPriority
	case has.id && has.valueBytes:
		return errOnlyWithIDs
	}

	places := make(map[string]int, len(o.IDs))
	for i, id := range o.IDs {
		if other, again := places[id]; again {
			return fmt.Errorf("ids: elements %d and %d are the same: want each id once", other, i)
		}
		places[id] = i
	}
	return nil
}

// Encode returns the payload that ParseItemOptions reads.
func (o ItemOptions) Encode(v Verb) []byte {
	has := itemMembers{id: o.IDs == nil, priority: true, valueBytes: o.IDs != nil && o.ValueBytes != 0}
	if !has.valueBytes || o.ValueBytes == NoValues {
		o.ValueBytes = 0
	}
	return o.members(v, &has).encode()
}

// members returns those of the object for a verb.
func (o *ItemOptions) members(v Verb, has *itemMembers) (list members) {
	if v != Redrive {
		list = append(list, member{name: "id", to: &o.ID, given: &has.id})
	}
	if v != Rank {
		list = append(list, member{name: "ids", to: &o.IDs, given: &has.ids, length: MaxItems})
	}

	switch v {
	case Rank:
		list = append(list, member{name: "end", to: (*isMax)(&o.Max)})
	case Redrive:
		list = append(list, member{name: "max", to: &o.Most, given: &has.most, least: 1, most: MaxRedrive})
	case Get:
		list = append(list, member{name: "value_bytes", to: &o.ValueBytes, given: &has.valueBytes, most: MaxValueBytes})
	case Move:
		list = append(list, member{
			name: "priority", to: &o.Priority, given: &has.priority,
			least: math.MinInt64, most: math.MaxInt64, want: "an integer, such as 5 or -5",
		})
	}
	return list
}
