// Package strictjson reads the JSON of requests and settings, which clients and operators write. A
// name counts only as it is spelled, and once; names that are not known, null, and anything after the
// value are errors. Errors name the member and say what it has to be, in printable ASCII.
//
// In a struct, tags name the members. A time.Duration is a text such as "1m30s" or an integer of
// nanoseconds, and a time.Time is in RFC 3339. A type that reads itself says in errors what it wants
// by a method Want() string.
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

// TimeLayout is how times are written, in UTC.
const TimeLayout = "2006-01-02T15:04:05.000000Z"

var (
	lenient = json.JoinOptions(
		jsontext.AllowInvalidUTF8(true), // which is replaced
		json.WithUnmarshalers(json.UnmarshalFromFunc(readDuration)),
	)
	strict  = json.JoinOptions(lenient, json.RejectUnknownMembers(true))
	writing = json.JoinOptions(
		jsontext.AllowInvalidUTF8(true),
		json.Deterministic(true),
		json.WithMarshalers(json.JoinMarshalers(json.MarshalToFunc(writeDuration), json.MarshalToFunc(writeTime))),
	)
)

// Unmarshal reads a value into what to points to.
func Unmarshal(data []byte, to any) error {
	err := json.Unmarshal(data, to, strict)
	if err == nil && bytes.Contains(data, []byte("null")) {
		err = findNull(data)
	}
	if err != nil {
		return explain(data, to, err)
	}
	return nil
}

// Members reads the members of an object in which null has a meaning.
func Members(data []byte) (members map[string]jsontext.Value, err error) {
	if err = json.Unmarshal(data, &members, strict); err == nil && members == nil {
		err = findNull(data)
	}
	if err != nil {
		return nil, explain(data, &members, err)
	}
	return members, nil
}

// UnmarshalReply reads what a program of another version may have written: it ignores members that
// are not known. Errors are not for clients.
func UnmarshalReply(data []byte, to any) error { return json.Unmarshal(data, to, lenient) }

// Marshal writes a value that both can read. It must be of a type that JSON has.
func Marshal(v any) []byte {
	data, _ := json.Marshal(v, writing) // fails only for other types
	return data
}

// DurationText is a duration in ASCII.
func DurationText(d time.Duration) string { return strings.Replace(d.String(), "µ", "u", 1) }

func readDuration(in *jsontext.Decoder, d *time.Duration) error {
	v, err := in.ReadValue()
	if err != nil {
		return err
	}

	var n int64
	switch v.Kind() {
	case jsontext.KindNumber:
		n, err = strconv.ParseInt(string(v), 10, 64)
		*d = time.Duration(n)
	case jsontext.KindString:
		text, _ := jsontext.AppendUnquote(make([]byte, 0, 32), v) // replaces invalid UTF-8
		*d, err = time.ParseDuration(string(text))
	default:
		err = errors.New("no duration")
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
			return nil // the end
		}
		if token.Kind() == jsontext.KindNull {
			at := d.InputOffset() - int64(len("null"))
			return &json.SemanticError{JSONPointer: d.StackPointer(), ByteOffset: at, JSONKind: jsontext.KindNull}
		}
	}
}

// maxQuoted is how many bytes of a text are shown.
const maxQuoted = 64

// Quote makes a text safe to print: quoted, ASCII, and not long.
func Quote(text string) string {
	if len(text) > maxQuoted {
		return fmt.Sprintf("%+q... (%d bytes)", text[:maxQuoted], len(text))
	}
	return fmt.Sprintf("%+q", text)
}

// shown is a value as it is written, unless that is unprintable or long.
func shown(v []byte) string {
	unprintable := func(c rune) bool { return c < ' ' || c > '~' }
	if len(v) == 0 || len(v) > maxQuoted || strings.ContainsFunc(string(v), unprintable) {
		return Quote(string(v))
	}
	return string(v)
}
