// Package buildinfo describes the source that a program was built from.
package buildinfo

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// Describe returns the version of this program, the revision of its source and the Go version, as
// far as they are known. version is the one that the linker sets for a release, or "".
func Describe(version string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return describe(version, info)
}

func describe(version string, info *debug.BuildInfo) string {
	parts := []string{cmp.Or(version, info.Main.Version, "(devel)")}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			parts = append(parts, s.Value)
		case s.Key == "vcs.modified" && s.Value == "true":
			parts = append(parts, "(modified)")
		case s.Key == "-tags":
			parts = append(parts, "tags="+s.Value)
		}
	}
	return strings.TrimSpace(strings.Join(append(parts, info.GoVersion), " "))
}
