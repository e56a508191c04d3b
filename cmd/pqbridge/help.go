package main

import (
	"flag"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/kelseyhightower/envconfig"
)

const helpHead = `pqbridge serves durable priority queues and FIFO queues over NATS.

Usage: pqbridge [flag]

`

// helpVariables is a template of envconfig.
const helpVariables = `
Configuration is by environment variables. Times are like 500ms, 5s or 1m;
sizes are in bytes.
{{range .}}
  {{usage_key .}}{{with usage_default .}} (default {{.}}){{end}}
        {{usage_description .}}{{end}}
`

// printHelp prints what there is to set, all of it made from the definitions.
func printHelp(w io.Writer, flags *flag.FlagSet) error {
	var b strings.Builder
	b.WriteString(helpHead)
	flags.VisitAll(func(f *flag.Flag) {
		fmt.Fprintf(&b, "  -%s\n        %s\n", f.Name, f.Usage)
	})
	if err := envconfig.Usagef("", &config{}, &b, helpVariables); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// version is set by the linker for released programs: -X main.version=1.2.3.
var version string

// semanticVersion returns the version for service discovery, "" if there is
// none to tell.
func semanticVersion() string { return strings.TrimPrefix(version, "v") }

// describeVersion returns the version, the revision it was built from and the
// Go version, as far as they are known.
func describeVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return orDevel(version)
	}
	name := version
	if name == "" && info.Main.Version != "" {
		name = info.Main.Version
	}
	parts := []string{orDevel(name)}
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
	return strings.Join(append(parts, info.GoVersion), " ")
}

func orDevel(version string) string {
	if version == "" {
		return "(devel)"
	}
	return version
}
