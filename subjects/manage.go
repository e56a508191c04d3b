package subjects

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// MaxRedrive is the most items that one redrive may ask for, and DefaultRedrive how many it means if it
// does not say.
const (
	MaxRedrive     = 1_000_000
	DefaultRedrive = 1000
)

// ItemOptions is the payload of a get, remove, rank or move, a JSON object:
//
//	{"id":"FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo"}
//	{"id":"FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo","end":"max"}
//	{"id":"FQEUAAZgsSk-WP2dUQEwPdUmVNcIYVo","priority":5}
type ItemOptions struct {
	ID string
	// Max says that a rank counts from the end of pop.max.
	Max bool
	// Priority is that to which a move moves the item.
	Priority int64
}

// Errors of objects that lack a member.
var (
	errNoID       = errors.New("no id: want {\"id\":\"...\"}, with an id as a push or pop returned it")
	errNoPriority = errors.New("no priority: want {\"id\":\"...\",\"priority\":5}")
)

// ParseItemOptions reads the payload of a get, remove, rank or move. Errors wrap ErrOptions.
func ParseItemOptions(v Verb, payload []byte) (o ItemOptions, err error) {
	var hasID, hasPriority bool
	members := memberList{{"id", func(v json.RawMessage) (err error) {
		hasID = true
		o.ID, err = parseText(v)
		return err
	}}}
	switch v {
	case Rank:
		members = append(members, member{"end", func(v json.RawMessage) (err error) {
			o.Max, err = parseEnd(v)
			return err
		}})
	case Move:
		members = append(members, member{"priority", func(v json.RawMessage) (err error) {
			hasPriority = true
			if o.Priority, err = strconv.ParseInt(string(v), 10, 64); err != nil {
				return fmt.Errorf("%s: want an integer, such as 5 or -5", shown(v))
			}
			return nil
		}})
	}
	if err := members.parse(payload); err != nil {
		return ItemOptions{}, err
	}
	switch {
	case !hasID:
		err = errNoID
	case v == Move && !hasPriority:
		err = errNoPriority
	}
	if err != nil {
		return ItemOptions{}, fmt.Errorf("%w: %s: %w", ErrOptions, shown(payload), err)
	}
	return o, nil
}

func parseEnd(v json.RawMessage) (isMax bool, err error) {
	switch string(v) {
	case `"min"`:
		return false, nil
	case `"max"`:
		return true, nil
	default:
		return false, fmt.Errorf(`%s: want "min" or "max"`, shown(v))
	}
}

// Encode returns the payload that ParseItemOptions reads.
func (o ItemOptions) Encode(v Verb) []byte {
	var b object
	b.add("id", textJSON(o.ID))
	if v == Rank && o.Max {
		b.add("end", textJSON("max"))
	}
	if v == Move {
		b.add("priority", strconv.AppendInt(nil, o.Priority, 10))
	}
	return b.end()
}

// State is a state of items.
type State string

// The states.
const (
	StateReady   State = "ready"
	StateDelayed State = "delayed"
	StateLeased  State = "leased"
)

// ParsePurge reads the payload of a purge, {"state":"ready"}: the state of the items to be removed, ""
// if all are. Errors wrap ErrOptions.
func ParsePurge(payload []byte) (state State, err error) {
	if len(payload) == 0 {
		return "", nil
	}
	members := memberList{{"state", func(v json.RawMessage) error {
		text, err := parseText(v)
		switch state = State(text); state {
		case StateReady, StateDelayed, StateLeased:
			return err
		default:
			return fmt.Errorf(`%s: want "ready", "delayed" or "leased"`, shown(v))
		}
	}}}
	if err := members.parse(payload); err != nil {
		return "", err
	}
	return state, nil
}

// EncodePurge returns the payload that ParsePurge reads.
func EncodePurge(s State) []byte {
	if s == "" {
		return nil
	}
	var b object
	b.add("state", textJSON(string(s)))
	return b.end()
}

// ParseRedrive reads the payload of a redrive, {"max":50}: the most items to send home. Errors wrap
// ErrOptions.
func ParseRedrive(payload []byte) (most int, err error) {
	if len(payload) == 0 {
		return DefaultRedrive, nil
	}
	members := memberList{{"max", func(v json.RawMessage) (err error) {
		most, err = parseCount(v, 0, MaxRedrive)
		return err
	}}}
	if err := members.parse(payload); err != nil {
		return 0, err
	}
	if most == 0 {
		most = DefaultRedrive
	}
	return most, nil
}

// EncodeRedrive returns the payload that ParseRedrive reads.
func EncodeRedrive(most int) []byte {
	var b object
	b.add("max", countJSON(most))
	return b.end()
}

// Removed is the payload of the reply to a remove.
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
}

// Redriven is the payload of the reply to a redrive: how many items were sent home.
type Redriven struct {
	Redriven int64 `json:"redriven"`
}

// EncodeReply returns one of these as JSON.
func EncodeReply[T Removed | Moved | Ranked | Purged | Redriven](reply T) []byte {
	payload, _ := json.Marshal(reply) // never returns an error for these types
	return payload
}

// ParseReply reads what EncodeReply wrote. It ignores members that it does not know.
func ParseReply[T Removed | Moved | Ranked | Purged | Redriven](payload []byte) (T, error) {
	return parseReply[T](payload)
}
