package subjects

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

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

// plainTexts reads an array of texts without escapes, such as ids and tokens, several times as fast
// as a decoder. It returns false for anything else. v must be valid JSON.
func plainTexts(v []byte) (list []string, ok bool) {
	if bytes.IndexByte(v, '\\') >= 0 || v[0] != '[' || !utf8.Valid(v) {
		return nil, false
	}

	// At most MaxFrames at first, however many commas a client sends.
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

// atMost returns an error if there are more than most texts.
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

// endOf returns "max", or "" for min, which is the default and left out.
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

// put adds a member if it is given. The value is an int, true, a string, a duration, or a slice of
// strings that is not empty.
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
	b, _ = jsontext.AppendQuote(b, text) // fails only for invalid UTF-8, which it replaces
	return b
}

// end returns the object.
func (o object) end() []byte {
	if o == nil {
		return []byte("{}")
	}
	return append(o, '}')
}

// Encode returns the payload that [ParsePopOptions] reads, or nil for the zero value. It checks
// nothing.
func (o PopOptions) Encode() []byte {
	if o == (PopOptions{}) {
		return nil // which most pops of one item do
	}
	return o.object().end()
}

func (o *PopOptions) object() (b object) {
	b.put("batch", o.Batch != 0, o.Batch)
	b.put("ack_wait", o.Lease || o.AckWait != 0, o.AckWait)
	b.put("max_bytes", o.MaxBytes != 0, o.MaxBytes)
	b.put("expires", o.Expires != 0, o.Expires)
	b.put("idle_heartbeat", o.IdleHeartbeat != 0, o.IdleHeartbeat)
	b.put("no_wait", o.NoWait, true)
	b.put("frames", o.Frames, true)
	b.put("id", o.ID != "", o.ID)
	b.put("holder", o.Holder != "", o.Holder)
	b.put("cancel", o.Cancel != "", o.Cancel)
	return b
}
