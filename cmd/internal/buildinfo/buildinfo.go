// Package buildinfo describes the source that a program was built from.
package buildinfo

import (
	"cmp"
	"runtime/debug"
	"strings"

	"golang.org/x/mod/semver"
)

// Unreleased is the version of a build that has none, in the form that service discovery wants.
const Unreleased = "0.0.0-devel"

// Describe returns the version of this program, the revision of its source and the Go version, as
// far as they are known. version is set by the linker in a release, otherwise it is "".
func Describe(version string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return describe(version, info)
}

// Number returns the semantic version of this program without the v, Unreleased if it has none.
// version is as for Describe.
func Number(version string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		version = cmp.Or(version, info.Main.Version)
	}
	return number(version)
}

func number(version string) string {
	version = strings.TrimPrefix(version, "v")
	if !semver.IsValid("v" + version) {
		return Unreleased
	}
	return version
}

// IsOlder reports whether a version is known to be older than another. Both are as from Number.
func IsOlder(version, than string) bool {
	if version == Unreleased || than == Unreleased {
		return false
	}
	return semver.IsValid("v"+version) && semver.Compare("v"+version, "v"+than) < 0
}

func describe(version string, info *debug.BuildInfo) string {
	parts := []string{number(cmp.Or(version, info.Main.Version))}
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
