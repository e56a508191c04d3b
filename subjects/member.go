package subjects

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// members is all that an object may have.
type members []member

// parse reads an object strictly: names as they are spelled here, each at most once, and nothing
// after the object. Errors wrap ErrOptions.
func (list members) parse(payload []byte) error {
	var wrong error // in the value of a member
	err := eachMember(payload, func(name string, value json.RawMessage) error {
		i := slices.IndexFunc(list, func(m member) bool { return m.name == name })
		if i < 0 {
			return fmt.Errorf("unknown member %s", quote(name))
		}
		if wrong = list[i].parse(value); wrong != nil {
			wrong = fmt.Errorf("%w: %s: %w", ErrOptions, name, wrong)
		}
		return wrong
	})
	if err == nil || wrong != nil {
		return wrong
	}

	names := make([]string, len(list))
	for i, m := range list {
		names[i] = m.name
	}
	return fmt.Errorf("%w: %s: %w: want a JSON object with members of %s",
		ErrOptions, shown(payload), err, strings.Join(names, ", "))
}

// encode returns an object of the members that are set, nil if none is. It does not check them.
func (list members) encode() []byte {
	var o object
	for i := range list {
		if m := &list[i]; m.isSet() {
			o.add(m.name, m.json())
		}
	}
	if o == nil {
		return nil
	}
	return o.end()
}

// member is a member of an object: where its value is, and which values it may have.
type member struct {
	name string
	// to is a pointer to an int, int64, bool, isMax, string, time.Duration or time.Time, to a slice of
	// string or time.Duration, or to a map of texts; or a func(json.RawMessage) error, which does all
	// by itself.
	to any
	// given is set if the member is there, and says so where its zero value would be left out.
	given *bool
	// least and most bound a number, the year of a time, and a duration, in nanoseconds, that is
	// not 0. Those of a slice bound its elements.
	least, most int64
	// length is the most elements of a slice or map.
	length int
	// off is the duration for which people write 0, if there is one.
	off time.Duration
	// check returns what is wrong with a text, unless it is nil.
	check func(string) error
	// object says that a text is the JSON of an object, which need not be in quotes.
	object bool
	// want says in errors what a number or a text is to be, in place of its bounds or that error.
	want string
}

// isMax is the end of a queue: "min" or "max".
type isMax bool

// isSet reports whether the object is to have the member.
func (m *member) isSet() bool {
	v := reflect.ValueOf(m.to).Elem()
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		return v.Len() > 0
	}
	return m.given != nil && *m.given || !v.IsZero()
}

// parse sets the value. The error says what it would have to be.
func (m *member) parse(v json.RawMessage) (err error) {
	if m.given != nil {
		*m.given = true
	}

	switch to := m.to.(type) {
	case func(json.RawMessage) error:
		return to(v)
	case *int:
		var n int64
		n, err = m.parseCount(v)
		*to = int(n)
	case *int64:
		*to, err = m.parseCount(v)
	case *bool:
		if *to = string(v) == "true"; !*to && string(v) != "false" {
			err = fmt.Errorf("%s: want true or false", shown(v))
		}
	case *isMax:
		if *to = string(v) == `"max"`; !*to && string(v) != `"min"` {
			err = fmt.Errorf(`%s: want "min" or "max"`, shown(v))
		}
	case *string:
		*to, err = m.parseText(v)
	case *time.Duration:
		if *to, err = m.parseDuration(v); err == nil && *to == 0 {
			*to = m.off
		}
	case *time.Time:
		*to, err = m.parseTime(v)
	case *[]string:
		*to, err = parseTexts(v, m.length)
	case *map[string]string:
		*to, err = m.parseTextMap(v)
	case *[]time.Duration:
		*to, err = m.parseDurations(v)
	}
	return err
}

// json returns the value.
func (m *member) json() []byte {
	switch to := m.to.(type) {
	case *int:
		return strconv.AppendInt(nil, int64(*to), 10)
	case *int64:
		return strconv.AppendInt(nil, *to, 10)
	case *bool:
		return strconv.AppendBool(nil, *to)
	case *isMax:
		return []byte(`"max"`) // "min" is left out
	case *string:
		if m.object {
			return []byte(*to)
		}
		return textJSON(*to)
	case *time.Duration:
		if *to == m.off {
			return textJSON(durationText(0))
		}
		return textJSON(durationText(*to))
	case *time.Time:
		return textJSON(to.UTC().Format(TimeLayout))
	case *[]string:
		return textsJSON(*to)
	case *map[string]string:
		b, _ := json.Marshal(*to) // never returns an error for this type
		return b
	default:
		var texts []string
		for _, d := range *to.(*[]time.Duration) {
			texts = append(texts, durationText(d))
		}
		return textsJSON(texts)
	}
}

func (m *member) parseCount(v json.RawMessage) (int64, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n < m.least || n > m.most {
		return 0, fmt.Errorf("%s: want %s", shown(v), cmp.Or(m.want, fmt.Sprintf("an integer from %d to %d", m.least, m.most)))
	}
	return n, nil
}

func (m *member) parseText(v json.RawMessage) (string, error) {
	text, err := parseText(v)
	if m.object && err != nil {
		text, err = string(v), nil
	}
	if err == nil && m.check != nil && (text != "" || !m.object) {
		err = m.check(text)
	}
	switch {
	case err == nil:
		return text, nil
	case m.want != "":
		err = fmt.Errorf("%s: want %s", shown(v), m.want)
	}
	return "", err
}

func parseText(v json.RawMessage) (string, error) {
	text, err := unquote(v)
	if err != nil {
		return "", fmt.Errorf("%s: want a text in quotes", shown(v))
	}
	return text, nil
}

// unquote returns the text of a JSON value, or an error if it is not a string.
func unquote(v json.RawMessage) (text string, err error) {
	if len(v) == 0 || v[0] != '"' {
		return "", errNotJSON
	}
	decoded, _ := jsontext.AppendUnquote(nil, v) // complains only of invalid UTF-8, which it replaces
	return string(decoded), nil
}

// parseTexts reads an array of up to n texts. v is JSON.
func parseTexts(v json.RawMessage, n int) (list []string, err error) {
	if len(v) == 0 || v[0] != '[' {
		return nil, fmt.Errorf("%s: want an array of texts", shown(v))
	}
	if list, ok := plainTexts(v, n); ok {
		return list, nil
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(v), jsonOptions...)
	_, _ = d.ReadToken() // the bracket

	list = []string{}
	count := 0
	for ; d.PeekKind() != jsontext.KindEndArray; count++ {
		value, bad := d.ReadValue()
		if bad != nil {
			return nil, errNotJSON
		}
		if count >= n || err != nil {
			continue
		}
		text, bad := parseText(json.RawMessage(value))
		if list = append(list, text); bad != nil {
			err = fmt.Errorf("element %d: %w", count, bad)
		}
	}

	if count > n {
		return nil, fmt.Errorf("an array of %d elements: want at most %d", count, n)
	}
	return list, err
}

// plainTexts reads an array of up to n texts without escapes, as ids and tokens are, an order of
// magnitude faster than a decoder. It returns false for any other array. v is JSON.
func plainTexts(v json.RawMessage, n int) (list []string, ok bool) {
	if bytes.IndexByte(v, '\\') >= 0 || !utf8.Valid(v) {
		return nil, false
	}
	list = make([]string, 0, min(bytes.Count(v, []byte{','})+1, n))
	for rest := v[1:]; len(list) < n && rest[0] == '"'; rest = rest[1:] {
		text, after, _ := bytes.Cut(rest[1:], []byte{'"'})
		list = append(list, string(text))
		if rest = after; rest[0] != ',' {
			return list, string(rest) == "]"
		}
	}
	return nil, false
}

// parseTextMap reads an object of texts, each of which the member's check allows.
func (m *member) parseTextMap(v json.RawMessage) (map[string]string, error) {
	texts := map[string]string{}
	err := eachMember(v, func(name string, value json.RawMessage) error {
		text, err := m.parseText(value)
		if err == nil && m.check != nil {
			err = m.check(name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", quote(name), err)
		}
		texts[name] = text
		return nil
	})
	switch {
	case errors.Is(err, errNotObject):
		return nil, fmt.Errorf("%s: want an object of texts", shown(v))
	case err == nil && len(texts) > m.length:
		return nil, fmt.Errorf("%d members: want at most %d", len(texts), m.length)
	}
	return texts, err
}

// parseDuration reads an integer in nanoseconds or a text with a unit.
func (m *member) parseDuration(v json.RawMessage) (d time.Duration, err error) {
	var text string
	var n int64
	if len(v) == 0 || v[0] != '"' {
		n, err = strconv.ParseInt(string(v), 10, 64)
		d = time.Duration(n)
	} else if text, err = unquote(v); err == nil {
		d, err = parseDurationText(text)
	}
	switch {
	case err != nil && text != "":
		return 0, fmt.Errorf("%s: want a duration with a unit, such as 30s or 1h30m", quote(text))
	case err != nil:
		return 0, fmt.Errorf("%s: want nanoseconds, or a text such as \"30s\"", shown(v))
	}

	least, most := time.Duration(m.least), time.Duration(m.most)
	if d != 0 && (d < least || d > most) {
		given := shown(v)
		if text == "" {
			given = fmt.Sprintf("%s nanoseconds, which are %s", given, durationText(d))
		}
		return 0, fmt.Errorf("%s: want %v to %v", given, least, most)
	}
	return d, nil
}

var errNoUnit = errors.New("no unit")

// parseDurationText reads a duration that has a unit or is 0.
func parseDurationText(text string) (time.Duration, error) {
	if text != "0" && isNumber(text) {
		return 0, errNoUnit
	}
	return time.ParseDuration(text)
}

// isNumber reports whether a text has no unit.
func isNumber(text string) bool { return strings.Trim(text, "0123456789.+-") == "" }

func (m *member) parseDurations(v json.RawMessage) ([]time.Duration, error) {
	var values []json.RawMessage
	if err := json.Unmarshal(v, &values); err != nil || len(values) > m.length {
		return nil, fmt.Errorf("%s: want an array of up to %d durations", shown(v), m.length)
	}

	list := make([]time.Duration, len(values))
	for i, value := range values {
		d, err := m.parseDuration(value)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		list[i] = d
	}
	return list, nil
}

// parseTime reads a time, and rounds it up to the next microsecond.
func (m *member) parseTime(v json.RawMessage) (time.Time, error) {
	text, err := parseText(v)
	if err != nil {
		return time.Time{}, err
	}

	at, err := time.Parse(time.RFC3339, text)
	if err == nil {
		at = at.Add(time.Microsecond - 1).Truncate(time.Microsecond).UTC()
	}
	if year := int64(at.Year()); err != nil || year < m.least || year > m.most {
		return time.Time{}, fmt.Errorf("%s: want a time such as \"2030-01-31T12:00:00Z\", with a year from %d to %d",
			quote(text), m.least, m.most)
	}
	return at, nil
}

func textJSON(text string) []byte {
	b, _ := jsontext.AppendQuote(nil, text) // complains only of invalid UTF-8, which it replaces
	return b
}

// durationText is ASCII.
func durationText(d time.Duration) string { return strings.Replace(d.String(), "µ", "u", 1) }

// textsJSON returns an array.
func textsJSON(list []string) []byte {
	size := 2
	for _, text := range list {
		size += len(text) + 3
	}
	b := append(make([]byte, 0, size), '[')
	for i, text := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, text) // as in textJSON
	}
	return append(b, ']')
}
