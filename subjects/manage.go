package subjects

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// MaxRedrive is the most items that a redrive may ask for, and DefaultRedrive how many it redrives
// if it does not say.
const (
	MaxRedrive     = 1_000_000
	DefaultRedrive = 1000
)

// Errors of objects whose members do not go together.
var (
	errNoID = errors.New(`no id: want {"id":"..."}, with an id that a push or pop returned, ` +
		`or {"place":"..."}`)
	errOnlyWithIDs = errors.New("value_bytes: only with ids or places")
	errNoPriority  = errors.New(`no priority: want {"id":"...","priority":5}`)
)

// State is a state of items, and of jobs that are over.
type State string

// The states.
const (
	StateReady   State = "ready"
	StateDelayed State = "delayed"
	StateLeased  State = "leased"
	StateDone    State = "done" // acknowledged, and kept
	StateDead    State = "dead" // a dead letter, in the reply to a result request
)

// knownState is one of the states.
type knownState State

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *knownState) UnmarshalText(text []byte) error {
	if !slices.Contains([]State{StateReady, StateDelayed, StateLeased, StateDone}, State(text)) {
		return ErrOptions
	}
	*s = knownState(text)
	return nil
}

// Want says what UnmarshalText reads.
func (knownState) Want() string { return `"ready", "delayed", "leased" or "done"` }

// purgeObject is the payload of a purge.
type purgeObject struct {
	State knownState `json:"state,omitzero"`
}

// ParsePurge reads the payload of a purge, such as {"state":"ready"}: the state of the items to
// remove, or "" for all, which an empty payload means too. Errors wrap [ErrOptions].
func ParsePurge(payload []byte) (State, error) {
	if len(payload) == 0 {
		return "", nil
	}
	var o purgeObject
	if err := strictjson.Unmarshal(payload, &o); err != nil {
		return "", fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return State(o.State), nil
}

// EncodePurge returns the payload that [ParsePurge] reads.
func EncodePurge(s State) []byte { return strictjson.Marshal(purgeObject{knownState(s)}) }

// Removed is the payload of the reply to a remove or release of one item.
type Removed struct {
	Queue string `json:"queue"`
	ID    string `json:"id"`
}

// Moved is the payload of the reply to a move of one item.
type Moved struct {
	Queue    string `json:"queue"`
	ID       string `json:"id"`    // of the job
	Place    string `json:"place"` // where the item is now
	Priority int64  `json:"priority"`
}

// Ranked is the payload of the reply to a rank.
type Ranked struct {
	// Rank is how many items would be served before the item.
	Rank int64 `json:"rank"`
	// AtLeast means that the bridge stopped counting: there may be more.
	AtLeast bool `json:"at_least"`
}

// Purged is the payload of the reply to a purge.
type Purged struct {
	// Purged is how many items were removed.
	Purged int64 `json:"purged"`
	// More means that the time was over before all were removed: send the request again.
	More bool `json:"more,omitzero"`
}

// Redriven is the payload of the reply to a redrive without ids.
type Redriven struct {
	// Redriven is how many items went back to the queues they came from.
	Redriven int64 `json:"redriven"`
	// More means that the time was over before all were sent back: send the request again.
	More bool `json:"more,omitzero"`
}

// ParseReply reads the JSON of a reply. It ignores unknown members, so that a newer bridge may add
// some. The error quotes the start of the payload.
func ParseReply[T any](payload []byte) (T, error) {
	var reply T
	if strictjson.UnmarshalReply(payload, &reply) != nil {
		return reply, notReply(payload)
	}
	return reply, nil
}

// MaxList is the most queues that a list returns, and the default.
const MaxList = 1000

// ListOptions is the payload of a list, a JSON object: {"after":"jobs","limit":100}.
type ListOptions struct {
	// After is the name after which the list begins, "" for all queues. Queues are sorted by name.
	After string `json:"after,omitzero"`
	// Limit is the most queues to return, 1 to MaxList; 0 means MaxList.
	Limit int `json:"limit,omitzero"`
}

// ParseListOptions reads the payload of a list, which may be empty. It returns the default for a
// Limit that is not given. Errors wrap [ErrOptions].
func ParseListOptions(payload []byte) (ListOptions, error) {
	return parseList(payload, tokenProblem)
}

// ParseSchedulesOptions is ParseListOptions for a list of schedules, whose ids may have other
// characters than names of queues.
func ParseSchedulesOptions(payload []byte) (ListOptions, error) {
	return parseList(payload, func(after string) string {
		if len(after) > settings.MaxQueueName {
			return fmt.Sprintf("is too long: want at most %d bytes", settings.MaxQueueName)
		}
		return ""
	})
}

// parseList reads the options of a list. problemOf says why its After is invalid, as the end of a
// sentence, or returns "".
func parseList(payload []byte, problemOf func(string) string) (o ListOptions, err error) {
	if len(payload) > 0 {
		err = strictjson.Unmarshal(payload, &o)
	}
	if problem := problemOf(o.After); err == nil && o.After != "" && problem != "" {
		err = fmt.Errorf("after: %s %s", quote(o.After), problem)
	}
	if err = cmp.Or(err, within("limit", &o.Limit, 0, MaxList)); err != nil {
		return ListOptions{}, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	o.Limit = cmp.Or(o.Limit, MaxList)
	return o, nil
}

// Encode returns the payload that [ParseListOptions] reads.
func (o ListOptions) Encode() []byte { return strictjson.Marshal(o) }

// QueueList is the payload of the reply to a list.
type QueueList struct {
	// Queues are sorted by name. A page may have few or none although there are more.
	Queues []QueueCounts `json:"queues"`
	// Next is the After of the next page, or nil if this is the last one.
	Next *string `json:"next"`
}

// QueueCounts is a queue and the number of its items in each state.
type QueueCounts struct {
	Queue   string `json:"queue"`
	Ready   int64  `json:"ready"`
	Leased  int64  `json:"leased"`
	Delayed int64  `json:"delayed"`
}

// Encode returns the JSON. It sets Queues to an empty list if it is nil.
func (l *QueueList) Encode() []byte {
	if l.Queues == nil {
		l.Queues = []QueueCounts{}
	}
	return strictjson.Marshal(l)
}
