package subjects

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// readObject reads the payload of a request into the struct that to points to. Errors wrap ErrOptions.
func readObject(payload []byte, to interface{ check() error }) error {
	err := strictjson.Unmarshal(payload, to)
	if err == nil {
		err = to.check()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return nil
}

// within returns an error unless a number is absent or within its bounds.
func within(name string, n *int, least, most int) error {
	if n != nil && (*n < least || *n > most) {
		return fmt.Errorf("%s: %d: want an integer from %d to %d", name, *n, least, most)
	}
	return nil
}

// deref returns the value of a member, or zero if it is absent.
func deref[T any](member *T) (v T) {
	if member != nil {
		v = *member
	}
	return v
}

// lasts returns an error unless a duration is 0 or within its bounds.
func lasts(name string, d, least, most time.Duration) error {
	if err := settings.CheckBounds(d, least, most); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// texts is an array of ids or tokens.
type texts []string

// UnmarshalJSON implements json.Unmarshaler.
func (t *texts) UnmarshalJSON(v []byte) error {
	if list, ok := plainTexts(v); ok {
		*t = list
		return nil
	}
	return strictjson.UnmarshalReply(v, (*[]string)(t))
}

// plainTexts reads an array of texts without escapes, as ids and tokens are, several times as fast as
// a decoder. It returns false for anything else. v is JSON.
func plainTexts(v []byte) (list []string, ok bool) {
	if bytes.IndexByte(v, '\\') >= 0 || v[0] != '[' || !utf8.Valid(v) {
		return nil, false
	}
	list = make([]string, 0, min(bytes.Count(v, []byte{','})+1, MaxFrames))
	for rest := v[1:]; rest[0] == '"'; rest = rest[1:] {
		text, after, _ := bytes.Cut(rest[1:], []byte{'"'})
		list = append(list, string(text))
		if rest = after; rest[0] != ',' {
			return list, string(rest) == "]"
		}
	}
	return nil, false
}

// atMost returns an error if there are more.
func (t texts) atMost(name string, most int) error {
	if len(t) > most {
		return fmt.Errorf("%s: an array of %d elements: want at most %d", name, len(t), most)
	}
	return nil
}

// queueEnd is the end of a queue: "min" or "max".
type queueEnd string

// UnmarshalText implements encoding.TextUnmarshaler.
func (e *queueEnd) UnmarshalText(text []byte) error {
	if *e = queueEnd(text); *e != "min" && *e != "max" {
		return ErrOptions
	}
	return nil
}

// Want says what UnmarshalText reads.
func (queueEnd) Want() string { return `"min" or "max"` }

// endOf returns "max", or what is left out.
func endOf(max bool) queueEnd {
	if max {
		return "max"
	}
	return ""
}

// object is a JSON object being written.
type object []byte

// add adds a member; value is JSON.
func (o *object) add(name string, value []byte) {
	separator := byte(',')
	if *o == nil {
		separator, *o = '{', make(object, 0, 64)
	}
	*o = append(append(appendText(append(*o, separator), name), ':'), value...)
}

// put adds a member, if it is given: an int, true, a text, a duration, or an array of texts.
func (o *object) put(name string, given bool, value any) {
	if !given {
		return
	}
	o.add(name, nil)
	switch v := value.(type) {
	case int:
		*o = strconv.AppendInt(*o, int64(v), 10)
	case bool:
		*o = append(*o, "true"...)
	case string:
		*o = appendText(*o, v)
	case time.Duration:
		*o = appendText(*o, strictjson.DurationText(v))
	case []string:
		for i, text := range v {
			*o = appendText(append(*o, "[,"[min(i, 1)]), text)
		}
		*o = append(*o, ']')
	}
}

// appendText appends the JSON of a text.
func appendText(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, text) // complains only of invalid UTF-8, which it replaces
	return b
}

// end returns the object.
func (o object) end() []byte {
	if o == nil {
		return []byte("{}")
	}
	return append(o, '}')
}
