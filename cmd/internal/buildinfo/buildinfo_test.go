package buildinfo

import (
	"runtime/debug"
	"testing"
)

// Only a known version can be older: a build without one is neither older nor newer.
func TestIsOlder(t *testing.T) {
	for _, m := range []struct {
		version, than string
		want          bool
	}{
		{"1.2.9", "1.2.10", true},
		{"1.3.0-rc.1", "1.3.0", true},
		{"0.0.0-20261126213754-5366b8e42aa1", "0.1.0", true},
		{Unreleased, "0.0.0-20261126213754-5366b8e42aa1", false},
		{Unreleased, "0.1.0", false},
		{"1.2.10", "1.2.10", false},
		{"1.2.10", "1.2.9", false},
		{"1.2.10", number("(devel)"), false},
		{"unknown", "1.2.9", false},
		{"", "1.2.9", false},
	} {
		if got := IsOlder(m.version, m.than); got != m.want {
			t.Errorf("%q is older than %q: %v", m.version, m.than, got)
		}
	}

	if got := number("v1.2.3"); got != "1.2.3" {
		t.Errorf("the number of v1.2.3 is %q", got)
	}
}

// A build from a clone names the commit, whatever version it has.
func TestDescribe(t *testing.T) {
	clone := &debug.BuildInfo{
		GoVersion: "go1.26.0",
		Main:      debug.Module{Version: "(devel)"},
		Settings: []debug.BuildSetting{
			{Key: "-tags", Value: "fdb"}, {Key: "vcs.revision", Value: "aee47b1323"},
			{Key: "vcs.modified", Value: "true"},
		},
	}
	for _, m := range []struct {
		want, version string
		info          *debug.BuildInfo
	}{
		{"0.0.0-devel tags=fdb aee47b1323 (modified) go1.26.0", "", clone},
		{"1.2.3 tags=fdb aee47b1323 (modified) go1.26.0", "v1.2.3", clone},
		{
			"1.2.4 go1.26.0", "",
			&debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.4"}},
		},
		{"0.0.0-devel", "", &debug.BuildInfo{}},
	} {
		if got := describe(m.version, m.info); got != m.want {
			t.Errorf("described as %q, want %q", got, m.want)
		}
	}
}
