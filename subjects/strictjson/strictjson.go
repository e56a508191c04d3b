// Package strictjson reads and writes the JSON of requests and settings, which clients and
// operators write by hand. Names must be spelled exactly and occur once. Unknown names, null, bytes
// that are not UTF-8, and anything after the value are errors. An error names the member and the
// form it should have, in printable ASCII.
//
// Tags name the members of a struct, as in encoding/json. A time.Duration is a text such as "1m30s"
// or an integer of nanoseconds, and a time.Time is in RFC 3339. A type that unmarshals itself says
// what it wants with a method Want() string, whose result errors show.
//
// All functions are safe for concurrent use.
package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// TimeLayout is the layout of times that Marshal writes, in UTC.
const TimeLayout = "2006-01-02T15:04:05.000000Z"

var (
	lenient = json.JoinOptions(
		jsontext.AllowInvalidUTF8(true), // and replaces it
		json.WithUnmarshalers(json.UnmarshalFromFunc(readDuration)),
	)
	strict = json.JoinOptions(
		lenient, jsontext.AllowInvalidUTF8(false), json.RejectUnknownMembers(true),
		json.WithUnmarshalers(json.JoinUnmarshalers(
			json.UnmarshalFromFunc(readDuration),
			json.UnmarshalFromFunc(readMembers[string]),
			json.UnmarshalFromFunc(readMembers[[]string]),
			json.UnmarshalFromFunc(readMembers[bool]),
			json.UnmarshalFromFunc(readMembers[jsontext.Value]),
		)))
	writers = json.JoinMarshalers(json.MarshalToFunc(writeDuration), json.MarshalToFunc(writeTime))
	writing = json.JoinOptions(
		jsontext.AllowInvalidUTF8(true),
		jsontext.AllowDuplicateNames(true), // which differed in bytes that are not UTF-8
		json.Deterministic(true),
		json.WithMarshalers(writers),
	)
)

// Unmarshal reads data into the value that to points to. Its errors are fit for the author of data.
func Unmarshal(data []byte, to any) error {
	if err := checkDepth(data); err != nil {
		return err
	}

	err := json.Unmarshal(data, to, strict)
	if err == nil && bytes.Contains(data, []byte("null")) {
		err = findNull(data)
	}
	if err != nil {
		return explain(data, to, err)
	}
	return nil
}

// Members reads the members of an object, whose values may be null.
func Members(data []byte) (members map[string]jsontext.Value, err error) {
	if err := checkDepth(data); err != nil {
		return nil, err
	}

	if err = json.Unmarshal(data, &members, strict); err == nil && members == nil {
		err = findNull(data)
	}
	if err != nil {
		return nil, explain(data, &members, err)
	}
	return members, nil
}

// UnmarshalReply reads what another version of this program may have written: it ignores unknown
// members and takes null. Its errors come from the JSON package and are not fit for clients.
func UnmarshalReply(data []byte, to any) error { return json.Unmarshal(data, to, lenient) }

// Marshal writes a value that Unmarshal and UnmarshalReply can read. The members of maps are
// sorted. It returns nil for a type that JSON cannot represent.
func Marshal(v any) []byte {
	data, _ := json.Marshal(v, writing)
	return data
}

// DurationText returns d.String() in ASCII: microseconds are "us".
func DurationText(d time.Duration) string { return strings.Replace(d.String(), "µ", "u", 1) }

// maxDepth is how deep values may be nested. The errors of the JSON package take a time that grows
// with the square of the depth.
const maxDepth = 16

// checkDepth returns an error for data that is nested too deep. It need not be JSON.
func checkDepth(data []byte) error {
	depth, inText := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
		if depth > maxDepth {
			return fmt.Errorf("arrays and objects nested more than %d deep: want fewer", maxDepth)
		}
	}
	return nil
}

// maxDurationText is longer than any duration that somebody writes.
const maxDurationText = 64

// ParseDuration is time.ParseDuration, but refuses long texts, which take it long.
func ParseDuration(text string) (time.Duration, error) {
	if len(text) > maxDurationText {
		return 0, fmt.Errorf("a duration of %d bytes: want at most %d", len(text), maxDurationText)
	}
	return time.ParseDuration(text)
}

func readDuration(in *jsontext.Decoder, d *time.Duration) error {
	v, err := in.ReadValue()
	if err != nil {
		return err
	}

	switch v.Kind() {
	case jsontext.KindNumber:
		var n int64
		if n, err = strconv.ParseInt(string(v), 10, 64); err == nil {
			*d = time.Duration(n)
		}
	case jsontext.KindString:
		text, _ := jsontext.AppendUnquote(make([]byte, 0, 32), v) // replaces invalid UTF-8
		*d, err = ParseDuration(string(text))
	default:
		err = errors.New("no duration")
	}
	return err
}

// MaxMembers is the most members that a map may have. They take much longer to read than a text.
const MaxMembers = 1000

var errMembers = fmt.Errorf("more than %d members", MaxMembers)

// readMembers reads an object into a map, and stops at the first member too many.
func readMembers[V any](in *jsontext.Decoder, members *map[string]V) error {
	if in.PeekKind() != jsontext.KindBeginObject {
		return errors.ErrUnsupported // the JSON package says what is wrong
	}

	*members = map[string]V{}
	_, err := in.ReadToken()
	for err == nil && in.PeekKind() != jsontext.KindEndObject {
		if len(*members) == MaxMembers {
			return errMembers
		}
		var value V
		name, err := in.ReadToken()
		if err != nil {
			return err
		}
		text := name.String()
		if err := json.UnmarshalDecode(in, &value); err != nil {
			return err
		}
		(*members)[text] = value
	}
	if err == nil {
		_, err = in.ReadToken()
	}
	return err
}

func writeDuration(out *jsontext.Encoder, d time.Duration) error {
	return out.WriteToken(jsontext.String(DurationText(d)))
}

func writeTime(out *jsontext.Encoder, t time.Time) error {
	return out.WriteToken(jsontext.String(t.UTC().Format(TimeLayout)))
}

// findNull returns an error about the first null in a value that is valid.
func findNull(data []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(data), strict)
	for {
		token, err := d.ReadToken()
		if err != nil {
			return nil // at the end
		}
		if token.Kind() == jsontext.KindNull {
			return &json.SemanticError{
				JSONPointer: d.StackPointer(),
				ByteOffset:  d.InputOffset() - int64(len("null")),
				JSONKind:    jsontext.KindNull,
			}
		}
	}
}

// maxQuoted is how many bytes of a text errors show.
const maxQuoted = 64

// Quote returns text in quotes and in ASCII, cut after 64 bytes, so that it is safe to print.
func Quote(text string) string { return QuoteStart(text, maxQuoted) }

// QuoteStart is Quote with another limit than 64 bytes.
func QuoteStart(text string, most int) string {
	if len(text) > most {
		return fmt.Sprintf("%+q... (%d bytes)", text[:most], len(text))
	}
	return fmt.Sprintf("%+q", text)
}

// shown returns a value as it is, or quoted if it is long or not printable ASCII.
func shown(v []byte) string {
	unprintable := func(c rune) bool { return c < ' ' || c > '~' }
	if len(v) == 0 || len(v) > maxQuoted || strings.ContainsFunc(string(v), unprintable) {
		return Quote(string(v))
	}
	return string(v)
}
