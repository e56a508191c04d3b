package strictjson

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// explain turns an error of the JSON package into one for the author of data, who thinks in JSON
// and not in Go types.
func explain(data []byte, to any, err error) error {
	whole := wanted(reflect.TypeOf(to))
	if self, ok := to.(interface{ Want() string }); ok { // it may know more than its type
		whole = self.Want()
	}

	var wrong *json.SemanticError
	if !errors.As(err, &wrong) {
		return fmt.Errorf("%s: want %s", malformed(data, err), whole)
	}
	if wrong.Err == json.ErrUnknownName {
		name, want := Quote(wrong.JSONPointer.LastToken()), wanted(wrong.GoType)
		if reflect.PointerTo(wrong.GoType) == reflect.TypeOf(to) {
			want = whole
		}
		return fmt.Errorf("unknown member %s: want %s", name, want)
	}

	if errors.Is(err, errMembers) {
		return fmt.Errorf("%s: %w", cmp.Or(place(wrong.JSONPointer), "the object"), errMembers)
	}

	// The package notices a wrong type before it has read the rest, which may not even be JSON.
	rest := data[wrong.ByteOffset:]
	value, bad := firstValue(rest[:min(len(rest), maxShown)])
	if len(rest) > maxShown && bad != nil {
		value, bad = rest, nil
	}
	if bad != nil {
		return fmt.Errorf("%s: want %s", malformed(data, bad), whole)
	}

	want := "a value, or leave it out"
	if wrong.JSONPointer == "" {
		want = whole
	} else if wrong.JSONKind != jsontext.KindNull {
		want = wanted(wrong.GoType)
	}
	if value.Kind() == jsontext.KindString { // as people write settings, such as backoff=1,2
		want = strings.TrimSuffix(want, orNanoseconds)
	}
	if wrong.JSONPointer == "" {
		return fmt.Errorf("%s: want %s", shown(value), want)
	}
	return fmt.Errorf("%s: %s: want %s", place(wrong.JSONPointer), shown(value), want)
}

// orNanoseconds is what a duration may be as a number.
const orNanoseconds = ", or nanoseconds"

// maxShown is how much of what has a wrong type is looked at, to show it.
const maxShown = 4 << 10

func firstValue(data []byte) (jsontext.Value, error) {
	return jsontext.NewDecoder(bytes.NewReader(data), strict).ReadValue()
}

// malformed says why data is not a single JSON value.
func malformed(data []byte, err error) string {
	var syntax *jsontext.SyntacticError
	value, bad := firstValue(data)
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &syntax):
		return Quote(syntax.JSONPointer.LastToken()) + " given twice"
	case bad != nil && errors.As(err, &syntax) && jsontext.Value(data).IsValid(lenient):
		return strings.TrimPrefix(place(syntax.JSONPointer)+": not UTF-8", ": ")
	case bad == nil:
		return shown(bytes.TrimSpace(data[len(value):])) + ": something comes after the object"
	case len(bytes.TrimSpace(data)) == 0:
		return "it is empty"
	}
	return shown(data) + ": not JSON"
}

// place returns a pointer as people write it, such as "backoff: element 3".
func place(p jsontext.Pointer) string {
	var parts []string
	for token := range p.Tokens() {
		if strings.Trim(token, "0123456789") == "" {
			token = "element " + token
		} else if quoted := Quote(token); quoted != `"`+token+`"` {
			token = quoted
		}
		parts = append(parts, token)
	}
	return strings.Join(parts, ": ")
}

// wanted says how to write a value of a type in JSON.
func wanted(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}

	if self, ok := reflect.Zero(t).Interface().(interface{ Want() string }); ok {
		return self.Want()
	}

	switch t {
	case reflect.TypeFor[time.Duration]():
		return `a duration with a unit such as "30s" or "24h"` + orNanoseconds
	case reflect.TypeFor[time.Time]():
		return `a time such as "2030-01-31T12:00:00Z"`
	case reflect.TypeFor[[]byte]():
		return `Base64 such as "aGk="`
	}

	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string in quotes"
	case reflect.Slice:
		return "an array" + ofTexts(t)
	case reflect.Map:
		return "a JSON object" + ofTexts(t)
	case reflect.Struct:
		return "a JSON object with members of " + strings.Join(names(t), ", ")
	}
	return "an integer, such as 5"
}

// ofTexts returns " of strings" for a slice or map of strings, else "".
func ofTexts(t reflect.Type) string {
	if t.Elem().Kind() == reflect.String {
		return " of strings"
	}
	return ""
}

// names returns the names of the members of a struct.
func names(t reflect.Type) (list []string) {
	for _, field := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "-" {
			list = append(list, name)
		}
	}
	return list
}
