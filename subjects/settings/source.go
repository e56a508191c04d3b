package settings

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// Source is the setting source: a stream of NATS JetStream that a queue draws from, and how its
// messages become items.
type Source struct {
	// Stream is the name of the stream, and Domain its JetStream domain; "" is the domain of the
	// bridge's account.
	Stream string `json:"stream"`
	Domain string `json:"domain"`
	// Filter is a subject, with or without wildcards, that messages must match; "" is any.
	Filter string `json:"filter"`
	// Priority and Group say where an item gets them from; nil is priority 0 and no group.
	Priority *SourceField `json:"priority"`
	Group    *SourceField `json:"group"`
	// Start is "all", "new" or the sequence of the first message. "" is "all".
	Start SourceStart `json:"start"`
	// OnBad says what happens to a message that cannot be an item: "dead_letter" or "stop". "" is
	// "dead_letter".
	OnBad string `json:"on_bad"`
	// WhenFull is "" or "wait": a full queue makes its source wait.
	WhenFull string `json:"when_full"`
}

// SourceField is a header of a message, a token of its subject, counted from 1, or a fixed value.
type SourceField struct {
	Header string `json:"header"`
	Token  int    `json:"token"`
	Value  *int64 `json:"-"`
}

// SourceStart is where a source begins.
type SourceStart string

// SourceState is how far a source has been drawn. The store and info have its JSON.
type SourceState struct {
	// Source is the setting; none if only Former is left.
	Source json.RawMessage `json:"source,omitempty"`
	// Created is when the stream was created; zero if nothing was drawn yet.
	Created time.Time `json:"created,omitzero"`
	// Sequence is the sequence of the last message that was drawn, or that Start skips.
	Sequence uint64 `json:"sequence"`
	// Drawn is how many messages became items, and Dead how many became dead letters.
	Drawn int64 `json:"drawn"`
	Dead  int64 `json:"dead"`
	// Newest is the latest time of a message that was drawn. A message that is delivered again is
	// not newer.
	Newest time.Time `json:"newest,omitzero"`
	// Removed is how many messages the stream had lost, from between others, before they were
	// drawn.
	Removed uint64 `json:"removed,omitempty"`
	// Lag is how many messages were left when this was written.
	Lag uint64 `json:"lag"`
	// Consumer is the name of the consumer, and Former the consumers of earlier sources that have
	// yet to be removed.
	Consumer string           `json:"consumer,omitempty"`
	Former   []SourceConsumer `json:"former,omitempty"`
	// Waiting says why nothing is drawn for now, and Stopped why nothing is drawn until the source
	// is set again.
	Waiting string `json:"waiting,omitempty"`
	Stopped string `json:"stopped,omitempty"`
}

// SourceConsumer is a consumer of a stream, and how far it has drawn: see SourceState.
type SourceConsumer struct {
	Stream   string    `json:"stream"`
	Domain   string    `json:"domain,omitempty"`
	Filter   string    `json:"filter,omitempty"`
	Name     string    `json:"name"`
	Sequence uint64    `json:"sequence"`
	Newest   time.Time `json:"newest,omitzero"`
}

// maxSource is the most bytes of a Source.
const maxSource = 2048

// ParseSource reads a Source. The error names the wrong member, and says what would be right.
func ParseSource(text string) (s Source, err error) {
	if len(text) > maxSource {
		return s, fmt.Errorf("%d bytes: want at most %d", len(text), maxSource)
	}
	err = cmp.Or(strictjson.Unmarshal([]byte(text), &s), s.check())
	return s, err
}

func checkSource(text string) error {
	_, err := ParseSource(text)
	return err
}

func (s *Source) check() error {
	wild := func(token string) bool { return len(token) > 1 && strings.ContainsAny(token, "*>") }
	tokens := strings.Split(s.Filter, ".")
	switch {
	case s.Stream == "" || len(s.Stream) > 255 || strings.ContainsAny(s.Stream, ".*>/\\ \t\r\n"):
		return fmt.Errorf("stream: %+.64q: want the name of a stream", s.Stream)
	case strings.ContainsAny(s.Domain, ".*> \t\r\n"):
		return fmt.Errorf("domain: %+.64q: want the name of a JetStream domain", s.Domain)
	case s.Filter != "" && (strings.ContainsAny(s.Filter, " \t\r\n") ||
		slices.Contains(tokens, "") || slices.ContainsFunc(tokens, wild) ||
		slices.Contains(tokens[:len(tokens)-1], ">")):
		return fmt.Errorf("filter: %+.64q: want a subject, with wildcards or without", s.Filter)
	case s.Group != nil && s.Group.Value != nil:
		return errors.New(`group: a number: want {"header":name} or {"token":n}`)
	case !slices.Contains([]string{"", "dead_letter", "stop"}, s.OnBad):
		return fmt.Errorf(`on_bad: %+.64q: want "dead_letter" or "stop"`, s.OnBad)
	case s.WhenFull != "" && s.WhenFull != "wait":
		return fmt.Errorf(`when_full: %+.64q: want "wait"`, s.WhenFull)
	}
	return nil
}

// UnmarshalJSON implements json.Unmarshaler. Want says what it wants.
func (f *SourceField) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &f.Value) == nil {
		return nil
	}

	type plain SourceField
	err := strictjson.Unmarshal(b, (*plain)(f))
	if err != nil || (f.Header == "") == (f.Token == 0) || f.Token < 0 || f.Token > 64 {
		return cmp.Or(err, errors.New("no field of a message"))
	}
	f.Value = nil
	return nil
}

// Want says what UnmarshalJSON reads.
func (SourceField) Want() string {
	return `a number, {"header":"X-Name"} or {"token":3}, with a token from 1 to 64`
}

// UnmarshalJSON implements json.Unmarshaler. Want says what it wants.
func (s *SourceStart) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	*s = SourceStart(text)
	if text == "all" || text == "new" || s.Sequence() > 0 && b[0] != '"' {
		return nil
	}
	return errors.New("no start")
}

// Want says what UnmarshalJSON reads.
func (SourceStart) Want() string { return `"all", "new" or a sequence from 1 on` }

// Sequence returns the sequence of the first message, 0 without one.
func (s SourceStart) Sequence() uint64 {
	n, err := strconv.ParseUint(string(s), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// sameMessages reports whether both draw the same messages, wherever they start.
func (s *Source) sameMessages(other *Source) bool {
	return s.Stream == other.Stream && s.Domain == other.Domain && s.Filter == other.Filter
}

// NextSource returns the stored state of a source after the setting has changed; "" is no source.
// The source continues where it was, even if it had stopped, unless the setting draws other
// messages or gives another start. The result is nil if nothing is left.
func NextSource(state []byte, source string) []byte {
	var s SourceState
	_ = json.Unmarshal(state, &s)           // a state that cannot be read starts from the beginning
	was, _ := ParseSource(string(s.Source)) // the same
	is, _ := ParseSource(source)

	if !was.sameMessages(&is) || is.Start != "" && is.Start != cmp.Or(was.Start, "all") {
		next := SourceState{Former: s.Former}
		if s.Consumer != "" {
			next.Former = append(next.Former, SourceConsumer{
				was.Stream, was.Domain, was.Filter, s.Consumer, s.Sequence, s.Newest,
			})
		}

		if was.Stream == is.Stream && was.Domain == is.Domain {
			next.Consumer = s.Consumer
		}
		s = next
	}

	s.Source, s.Waiting, s.Stopped = json.RawMessage(source), "", ""
	return s.JSON()
}

// WithStartOf returns a source with the start of the one before, if both draw the same messages. So
// the source continues where it was.
func WithStartOf(source, before string) string {
	is, _ := ParseSource(source)
	was, err := ParseSource(before)
	if err != nil || !was.sameMessages(&is) || was.Start == is.Start {
		return source
	}

	var members, earlier map[string]json.RawMessage
	_ = json.Unmarshal([]byte(source), &members)
	_ = json.Unmarshal([]byte(before), &earlier)
	delete(members, "start")
	if was.Start != "" {
		members["start"] = earlier["start"]
	}

	text, _ := json.Marshal(members) // as it was read
	return string(text)
}

// ParseSourceState reads what JSON returns.
func ParseSourceState(b []byte) (s SourceState, err error) {
	err = json.Unmarshal(b, &s)
	return s, err
}

// String says how far the source has been drawn, as text for people.
func (s *SourceState) String() string {
	text := fmt.Sprintf("drawn to %d, %d left", s.Sequence, s.Lag)
	switch {
	case s.Stopped != "":
		text += ", stopped: " + s.Stopped
	case s.Waiting != "":
		text += ", waiting: " + s.Waiting
	}
	return text
}

// JSON returns the state as it is stored, nil if there is none.
func (s *SourceState) JSON() []byte {
	if len(s.Source) == 0 && len(s.Former) == 0 {
		return nil
	}
	b, _ := json.Marshal(s) // compacts the source, which is JSON
	return b
}
