package subjects_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// Settings that limit a queue are read as they are written, and bad ones are refused with what would be
// right.
func TestLimitSettings(t *testing.T) {
	at := time.Date(2030, 1, 31, 12, 0, 0, 1000, time.UTC)
	for payload, want := range map[string]subjects.Settings{
		`{"pause_until":"2030-01-31T12:00:00.000001Z"}`:      {PauseUntil: &at},
		`{"pause_until":"2030-01-31T13:00:00.000001+01:00"}`: {PauseUntil: &at},
		`{"pause_until":"2030-01-31T12:00:00.000000001Z"}`:   {PauseUntil: &at},
		`{"pause_until":null}`:                               {PauseUntil: new(time.Time)},
		`{"max_leased":5,"max_items":1000000000}`:            {MaxLeased: pointer(5), MaxItems: pointer(1_000_000_000)},
		`{"max_bytes":1125899906842624,"discard":"old"}`:     {MaxBytes: pointer(1 << 50), Discard: pointer("old")},
		`{"discard":"new"}`:                                  {Discard: pointer("new")},
		`{"max_bytes":null,"discard":null}`:                  {MaxBytes: new(int), Discard: new(string)},
		`{"max_leased":null,"max_items":0}`:                  {MaxLeased: new(int), MaxItems: new(int)},
	} {
		got, err := subjects.ParseSettings([]byte(payload))
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v: want %+v", payload, got, err, want)
			continue
		}
		if again, err := subjects.ParseSettings(got.Encode()); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%s is encoded %s, read as %+v, %v", payload, got.Encode(), again, err)
		}
	}
	for payload, words := range map[string]string{
		`{"max_leased":-1}`:                           "max_leased: -1: want an integer from 0 to 1000000000",
		`{"max_items":1000000001}`:                    "max_items: ",
		`{"max_bytes":-1}`:                            "max_bytes: -1: want an integer from 0 to 1125899906842624",
		`{"max_bytes":1125899906842625}`:              "want an integer from 0 to 1125899906842624",
		`{"max_bytes":"1MB"}`:                         "max_bytes: ",
		`{"discard":"OLD"}`:                           `discard: "OLD": want "new" or "old"`,
		`{"discard":""}`:                              `want "new" or "old"`,
		`{"discard":true}`:                            "want a text in quotes",
		`{"discard":"old","discard":"new"}`:           "given twice",
		`{"max_items":1.5}`:                           "max_items: ",
		`{"pause_until":5}`:                           "want a text in quotes",
		`{"pause_until":"1h"}`:                        `want a time such as "2030-01-31T12:00:00Z"`,
		`{"pause_until":"2030-01-31"}`:                "want a time such as",
		`{"pause_until":"1969-12-31T23:59:59Z"}`:      "a year from 1970 to 9999",
		`{"pause_until":"9999-12-31T23:59:59-01:00"}`: "a year from 1970 to 9999",
	} {
		_, err := subjects.ParseSettings([]byte(payload))
		if !errors.Is(err, subjects.ErrOptions) || !strings.Contains(fmt.Sprint(err), words) {
			t.Errorf("%s: %v, want %q", payload, err, words)
		}
	}
}
