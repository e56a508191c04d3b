package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Source says from which stream of NATS JetStream a queue draws messages, and how each becomes an
// item. Its JSON is what is sent and stored.
type Source struct {
	// Stream is the name of the stream, and Domain the JetStream domain that it is in, "" for that of
	// the bridge's account.
	Stream string `json:"stream"`
	Domain string `json:"domain,omitempty"`
	// Filter is a subject, with wildcards, that messages must match; "" is all of the stream.
	Filter string `json:"filter,omitempty"`
	// Priority and Group say where an item has them from. Without, its priority is 0, and it has no
	// group. A Group has no Value.
	Priority *SourceField `json:"priority,omitempty"`
	Group    *SourceField `json:"group,omitempty"`
	// Start is "all", "new" or the sequence of the first message. Not set, it is "all".
	Start SourceStart `json:"start,omitempty"`
	// OnBad says what becomes of a message that cannot be an item: "dead_letter" or "stop". Not set, it
	// is "dead_letter".
	OnBad string `json:"on_bad,omitempty"`
	// WhenFull is "wait" or not set, which means the same: a full queue holds its source back.
	WhenFull string `json:"when_full,omitempty"`
}

// SourceField is a Header of a message, a Token of its subject, counted from 1, or, if both are
// zero, a Value.
type SourceField struct {
	Header string `json:"header,omitempty"`
	Token  int    `json:"token,omitempty"`
	Value  int64  `json:"-"`
}

// SourceStart is where a source begins: "all", "new" or a sequence.
type SourceStart string

// Values of Source.
const (
	StartAll = "all"
	StartNew = "new"
	BadStops = "stop"
)

// maxSource is the longest JSON of a Source, and maxToken the largest Token.
const maxSource, maxToken = 2048, 64

const sourceExample = `such as {"stream":"ORDERS","filter":"orders.>","priority":{"header":"X-Priority"},"start":"all"}`

// ParseSource reads a Source strictly. The error names the member that is wrong.
func ParseSource(text string) (s Source, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if len(text) > maxSource {
		err = fmt.Errorf("%d bytes: want at most %d", len(text), maxSource)
	} else if err = d.Decode(&s); err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("something after the object")
		}
	}
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typed):
		err = fmt.Errorf("%s: %s: want a %v", typed.Field, typed.Value, typed.Type)
	case err == nil:
		err = s.check()
	}
	if err != nil {
		return s, fmt.Errorf("%s: want an object %s", strings.TrimPrefix(err.Error(), "json: "), sourceExample)
	}
	return s, nil
}

// canonicalSource returns the JSON of a Source as it is stored.
func canonicalSource(text string) (string, error) {
	s, err := ParseSource(text)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(&s)
	return string(b), err
}

func (s *Source) check() error {
	oneOf := func(name, value string, choices ...string) error {
		for _, choice := range append(choices, "") {
			if value == choice {
				return nil
			}
		}
		return fmt.Errorf(`%s: %.64q: want "%s"`, name, value, strings.Join(choices, `" or "`))
	}
	switch {
	case s.Stream == "" || len(s.Stream) > 255 || strings.ContainsAny(s.Stream, ".*>/\\ \t\r\n"):
		return fmt.Errorf("stream: %.64q: want the name of a stream", s.Stream)
	case strings.ContainsAny(s.Domain, ".*> \t\r\n"):
		return fmt.Errorf("domain: %.64q: want the name of a JetStream domain", s.Domain)
	case s.Filter != "" && !validFilter(s.Filter):
		return fmt.Errorf("filter: %.64q: want a subject, with wildcards or without", s.Filter)
	case s.Group != nil && s.Group.isValue():
		return errors.New(`group: a number: want {"header":name} or {"token":n}`)
	}
	return errors.Join(oneOf("on_bad", s.OnBad, "dead_letter", BadStops), oneOf("when_full", s.WhenFull, "wait"))
}

func validFilter(subject string) bool {
	if strings.ContainsAny(subject, " \t\r\n") {
		return false
	}
	tokens := strings.Split(subject, ".")
	for i, token := range tokens {
		wild := len(token) > 1 && strings.ContainsAny(token, "*>")
		if token == "" || wild || token == ">" && i < len(tokens)-1 {
			return false
		}
	}
	return true
}

func (f *SourceField) isValue() bool { return f.Header == "" && f.Token == 0 }

// MarshalJSON implements json.Marshaler.
func (f *SourceField) MarshalJSON() ([]byte, error) {
	if f.isValue() {
		return strconv.AppendInt(nil, f.Value, 10), nil
	}
	type plain SourceField
	return json.Marshal((*plain)(f))
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *SourceField) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &f.Value) == nil {
		return nil
	}
	type plain SourceField
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode((*plain)(f)); err != nil || (f.Header == "") == (f.Token == 0) || f.Token < 0 || f.Token > maxToken {
		return fmt.Errorf(`priority or group: %.64s: want a priority, {"header":name} or {"token":n}, with n from 1 to %d`, b, maxToken)
	}
	return nil
}

// Sequence is the sequence of the first message, 0 for "all" and "new".
func (s SourceStart) Sequence() uint64 {
	n, _ := strconv.ParseUint(string(s), 10, 64)
	return n
}

// MarshalJSON implements json.Marshaler.
func (s SourceStart) MarshalJSON() ([]byte, error) {
	if n := s.Sequence(); n > 0 {
		return strconv.AppendUint(nil, n, 10), nil
	}
	return json.Marshal(string(s))
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *SourceStart) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	if *s = SourceStart(text); text != StartAll && text != StartNew && (s.Sequence() == 0 || b[0] == '"') {
		return fmt.Errorf(`start: %.64s: want "all", "new" or a sequence from 1 on`, b)
	}
	return nil
}

// SourceState is a Source and how far it has been drawn. Its JSON is what is stored and what info
// shows.
type SourceState struct {
	Source
	// Created is when the stream was created; zero if nothing was drawn yet.
	Created time.Time `json:"created,omitzero"`
	// Sequence is that of the last message that was drawn, or that Source.Start passes over.
	Sequence uint64 `json:"sequence"`
	// Drawn and Dead are how many messages became items, and dead letters.
	Drawn int64 `json:"drawn"`
	Dead  int64 `json:"dead"`
	// Lag is how many messages of the stream were left when this was written.
	Lag uint64 `json:"lag"`
	// Waiting says why nothing is drawn for now, and Stopped why nothing is until the source is set
	// again.
	Waiting string `json:"waiting,omitempty"`
	Stopped string `json:"stopped,omitempty"`
}

// ParseSourceState reads the JSON of a SourceState.
func ParseSourceState(b []byte) (s SourceState, err error) { return s, json.Unmarshal(b, &s) }

// JSON is what ParseSourceState reads.
func (s *SourceState) JSON() []byte {
	b, _ := json.Marshal(s) // never returns an error for these types
	return b
}

// Set gives the state another source, with which a source that has stopped goes on. It starts from the
// beginning if that draws other messages.
func (s *SourceState) Set(to Source) {
	was := &s.Source
	if was.Stream != to.Stream || was.Domain != to.Domain || was.Filter != to.Filter || was.Start != to.Start {
		*s = SourceState{}
	}
	s.Source, s.Waiting, s.Stopped = to, "", ""
}
