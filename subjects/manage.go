package subjects

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// MaxRedrive is the most items that one redrive may ask for, and DefaultRedrive how many it means
// if it does not say.
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
	if err := o.members(v, &hasID, &hasPriority).parse(payload); err != nil {
		return ItemOptions{}, err
	}

	switch {
	case !hasID:
		err = errNoID
	case v == Move && !hasPriority:
		err = errNoPriority
	default:
		return o, nil
	}
	return ItemOptions{}, fmt.Errorf("%w: %s: %w", ErrOptions, shown(payload), err)
}

// Encode returns the payload that ParseItemOptions reads.
func (o ItemOptions) Encode(v Verb) []byte {
	given := true
	return o.members(v, &given, &given).encode()
}

// members returns those of the object for a verb.
func (o *ItemOptions) members(v Verb, hasID, hasPriority *bool) members {
	list := members{{name: "id", to: &o.ID, given: hasID}}
	switch v {
	case Rank:
		list = append(list, member{name: "end", to: (*isMax)(&o.Max)})
	case Move:
		list = append(list, member{
			name: "priority", to: &o.Priority, given: hasPriority,
			least: math.MinInt64, most: math.MaxInt64, want: "an integer, such as 5 or -5",
		})
	}
	return list
}

// State is a state of items.
type State string

// The states.
const (
	StateReady   State = "ready"
	StateDelayed State = "delayed"
	StateLeased  State = "leased"
)

// ParsePurge reads the payload of a purge, {"state":"ready"}: the state of the items to be removed,
// "" if all are. Errors wrap ErrOptions.
func ParsePurge(payload []byte) (s State, err error) {
	if len(payload) > 0 {
		err = s.members().parse(payload)
	}
	if err != nil {
		return "", err
	}
	return s, nil
}

// EncodePurge returns the payload that ParsePurge reads.
func EncodePurge(s State) []byte { return s.members().encode() }

func (s *State) members() members {
	known := func(text string) error {
		if !slices.Contains([]State{StateReady, StateDelayed, StateLeased}, State(text)) {
			return ErrOptions
		}
		return nil
	}
	return members{{name: "state", to: (*string)(s), check: known, want: `"ready", "delayed" or "leased"`}}
}

// ParseRedrive reads the payload of a redrive, {"max":50}: the most items to send home. Errors wrap
// ErrOptions.
func ParseRedrive(payload []byte) (most int, err error) {
	if len(payload) > 0 {
		err = redriveMembers(&most).parse(payload)
	}
	if err != nil {
		return 0, err
	}
	return cmp.Or(most, DefaultRedrive), nil
}

// EncodeRedrive returns the payload that ParseRedrive reads.
func EncodeRedrive(most int) []byte { return redriveMembers(&most).encode() }

func redriveMembers(most *int) members { return members{{name: "max", to: most, most: MaxRedrive}} }

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
