package subjects

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// MaxRedrive is the most items that one redrive may ask for, and DefaultRedrive how many it means
// if it does not say.
const (
	MaxRedrive     = 1_000_000
	DefaultRedrive = 1000
)

// Errors of objects that lack a member.
var (
	errNoID         = errors.New("no id: want {\"id\":\"...\"}, with an id as a push or pop returned it")
	errNoIDs        = errors.New("no ids: want {\"ids\":[\"...\"]}, with ids as pushes, pops or items returned them")
	errBothIDs      = errors.New("id and ids: want one of them")
	errBothRedrives = errors.New("ids and max: want one of them")
	errOnlyWithIDs  = errors.New("value_bytes: only with ids")
	errNoPriority   = errors.New("no priority: want {\"id\":\"...\",\"priority\":5}")
)

// State is a state of items.
type State string

// The states.
const (
	StateReady   State = "ready"
	StateDelayed State = "delayed"
	StateLeased  State = "leased"
)

// knownState is one of the states.
type knownState State

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *knownState) UnmarshalText(text []byte) error {
	if !slices.Contains([]State{StateReady, StateDelayed, StateLeased}, State(text)) {
		return ErrOptions
	}
	*s = knownState(text)
	return nil
}

// Want says what UnmarshalText reads.
func (knownState) Want() string { return `"ready", "delayed" or "leased"` }

// purgeObject is the payload of a purge.
type purgeObject struct {
	State knownState `json:"state,omitzero"`
}

func (o *purgeObject) check() error { return nil }

// ParsePurge reads the payload of a purge, {"state":"ready"}: the state of the items to be removed,
// "" if all are. Errors wrap ErrOptions.
func ParsePurge(payload []byte) (State, error) {
	var o purgeObject
	if len(payload) == 0 {
		return "", nil
	}
	if err := readObject(payload, &o); err != nil {
		return "", err
	}
	return State(o.State), nil
}

// EncodePurge returns the payload that ParsePurge reads.
func EncodePurge(s State) []byte { return strictjson.Marshal(purgeObject{knownState(s)}) }

// Removed is the payload of the reply to a remove or release of one item.
type Removed struct {
	Queue string `json:"queue"`
	ID    string `json:"id"`
}

// Moved is the payload of the reply to a move. The id is the one that the item has now.
type Moved struct {
	Queue    string `json:"queue"`
	ID       string `json:"id"`
	Priority int64  `json:"priority"`
}

// Ranked is the payload of the reply to a rank.
type Ranked struct {
	// Rank is how many items would be served before the item.
	Rank int64 `json:"rank"`
	// AtLeast says that there may be more.
	AtLeast bool `json:"at_least"`
}

// Purged is the payload of the reply to a purge: how many items were removed.
type Purged struct {
	Purged int64 `json:"purged"`
	More   bool  `json:"more,omitempty"` // there may be more than there was time for
}

// Redriven is the payload of the reply to a redrive: how many items were sent home.
type Redriven struct {
	Redriven int64 `json:"redriven"`
	More     bool  `json:"more,omitempty"` // as in Purged
}

// EncodeReply returns a reply as JSON, which it has to have a form in.
func EncodeReply(reply any) []byte {
	payload, _ := json.Marshal(reply)
	return payload
}

// ParseReply reads a reply of which EncodeReply, or a method or function that appends it, wrote the JSON.
// It ignores members that it does not know, so that a newer bridge may add some.
func ParseReply[T any](payload []byte) (T, error) {
	var reply T
	if err := json.Unmarshal(payload, &reply); err != nil {
		return reply, notReply(payload)
	}
	return reply, nil
}
