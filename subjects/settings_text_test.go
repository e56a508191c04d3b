package subjects_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/subjects"
)

// settingTexts has a text for each setting, in the form that List returns.
var settingTexts = []subjects.Setting{
	{"ack_wait", "1m0s"},
	{"backoff", "1s,10s"},
	{"max_deliver", "5"},
	{"dead_letter", "123"},
	{"ttl", "1h0m0s"},
	{"pause_until", "2030-01-31T12:00:00.000000Z"},
	{"max_leased", "3"},
	{"max_items", "4"},
	{"max_bytes", "5"},
	{"discard", "old"},
	{"duplicate_window", "0s"},
}

func TestSettingsAsText(t *testing.T) {
	var s subjects.Settings
	var names []string
	for _, setting := range settingTexts {
		if err := s.Set(setting.Name, setting.Value); err != nil {
			t.Error(err)
		}
		names = append(names, setting.Name)
	}
	if got := s.List(); !reflect.DeepEqual(got, settingTexts) {
		t.Errorf("the settings are %v, want %v", got, settingTexts)
	}
	if all := subjects.SettingNames(); !reflect.DeepEqual(all, names) {
		t.Errorf("the test sets %v, there are %v", names, all)
	}
	// What they reset is in the change, and nowhere else.
	s = subjects.Settings{}
	for _, name := range names {
		if err := s.Set(name, ""); err != nil {
			t.Error(err)
		}
	}
	change, err := subjects.ParseSettings(s.Encode())
	if err != nil || !reflect.DeepEqual(*change, s) || len(s.List()) != len(names) {
		t.Errorf("reset: %s, %v", s.Encode(), err)
	}
}

func TestBadSettingsAsText(t *testing.T) {
	for _, bad := range []struct{ name, value, words string }{
		{"ack_weight", "1m", `no setting "ack_weight": want one of ack_wait, backoff, `},
		{"ack_wait", "30", "such as 30s"},
		{"ack_wait", "1ns", "100ms"},
		{"backoff", "1s,soon", "element 1"},
		{"max_items", "many", "integer"},
		{"max_items", "-1", "integer"},
		{"discard", "all", `"new" or "old"`},
		{"dead_letter", "a.b", "a.b"},
		{"pause_until", "tomorrow", "2030"},
	} {
		var s subjects.Settings
		err := s.Set(bad.name, bad.value)
		if !errors.Is(err, subjects.ErrOptions) || !strings.Contains(err.Error(), bad.words) || s.List() != nil {
			t.Errorf("%s=%s: %v and %v, want words %q", bad.name, bad.value, err, s.List(), bad.words)
		}
	}
}
