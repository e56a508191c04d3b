package main

import (
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/pqbridge/pqbridge/cmd/internal/buildinfo"
)

const helpHead = `pqbridge serves durable priority queues and FIFO queues over NATS.

  pqbridge               serve, as the environment variables below say
  pqbridge -dev          try it: starts a NATS server too, keeps data in ./data
  pqbridge -backup DIR   copy the embedded store to the new folder DIR; works
                         while a service uses the store
  pqbridge -migrate fdb  copy the embedded store into an empty FoundationDB;
                         "-migrate embedded" copies the other way
  pqbridge -healthcheck  exit with 0 if the service at PQ_HTTP_ADDR is ready
  pqbridge -version      print the version
  pqbridge -help         print this help

Environment variables. Times are like 500ms, 5s or 1m; sizes are in bytes.
`

const helpFoot = `
To start: run pqbridge -dev, and in another terminal

  pq push jobs "write the report"
  pq pop jobs

Running it in production: docs/operations.md
`

const (
	helpWidth = 80
	helpName  = 34 // columns in front of a description
)

// printHelp prints what there is to set.
func printHelp(w io.Writer) error {
	var b strings.Builder
	b.WriteString(helpHead)
	for _, v := range variables() {
		if v.group != "" {
			fmt.Fprintf(&b, "\n%s\n", v.group)
		}
		description := v.description

		if v.byDefault != "" {
			description += " (default " + v.byDefault + ")"
		}
		name := "  " + v.name
		for _, line := range wrap(description, helpWidth-helpName) {
			fmt.Fprintf(&b, "%-*s%s\n", helpName, name, line)
			name = ""
		}
	}

	b.WriteString(helpFoot)
	_, err := io.WriteString(w, b.String())
	return err
}

// wrap breaks text into lines of at most width bytes, but does not break words.
func wrap(text string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case len(*last)+1+len(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

// variable is an environment variable as people see it.
type variable struct {
	name, description string
	byDefault         string // "" if there is none
	group             string // heading of the group that begins here, or ""
	option            string // package and field of the option with its value, or ""
}

// variables describes the fields of config, in order.
func variables() []variable {
	var all []variable
	defaults := reflect.ValueOf(*defaultConfig())
	for i, field := range reflect.VisibleFields(defaults.Type()) {
		all = append(all, variable{
			name:        field.Tag.Get("envconfig"),
			description: field.Tag.Get("desc"),
			byDefault:   fmt.Sprint(defaults.Field(i)),
			group:       field.Tag.Get("group"),
			option:      field.Tag.Get("option"),
		})
	}
	return all
}

// version is set by the linker for released programs: -X main.version=1.2.3.
var version string

// semanticVersion returns the version for service discovery, "" if the linker set none.
func semanticVersion() string { return strings.TrimPrefix(version, "v") }

// describeVersion returns the version, and from what this program was built.
func describeVersion() string { return buildinfo.Describe(version) }
