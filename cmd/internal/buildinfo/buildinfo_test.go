package buildinfo

import (
	"runtime/debug"
	"testing"
)

// A build from a clone names the commit, whatever version it has.
func TestDescribe(t *testing.T) {
	clone := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{
		{Key: "-tags", Value: "fdb"}, {Key: "vcs.revision", Value: "aee47b1323"}, {Key: "vcs.modified", Value: "true"},
	}}
	for _, m := range []struct {
		want, version string
		info          *debug.BuildInfo
	}{
		{"(devel) tags=fdb aee47b1323 (modified) go1.26.0", "", clone},
		{"v1.2.3 tags=fdb aee47b1323 (modified) go1.26.0", "v1.2.3", clone},
		{"v1.2.4 go1.26.0", "", &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.4"}}},
		{"(devel)", "", &debug.BuildInfo{}},
	} {
		if got := describe(m.version, m.info); got != m.want {
			t.Errorf("described as %q, want %q", got, m.want)
		}
	}
}
