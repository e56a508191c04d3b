package main

import (
	"cmp"
	_ "embed" // variables.txt
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/pqbridge/pqbridge/cmd/internal/buildinfo"
)

const helpHead = `pqbridge serves durable priority queues and FIFO queues over NATS.

  pqbridge               serve, as the environment variables below say
  pqbridge -dev          try it: starts a NATS server with JetStream too, keeps
                         data in ./data
  pqbridge -backup DIR   copy the embedded store to the new folder DIR; works
                         while a service uses the store. With -keep N, the new
                         folder is inside DIR, named by the time, and only the
                         newest N of these are kept
  pqbridge -restore DIR  copy the backup DIR to PQ_DATA_DIR, which must be empty
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

Running it in production: docs/install.md; if something is wrong: docs/oncall.md
`

const (
	helpWidth = 80
	helpName  = 34 // columns before a description
)

// printHelp prints the flags and variables.
func printHelp(w io.Writer) error {
	var b strings.Builder
	b.WriteString(helpHead)
	for _, v := range variables() {
		if v.group != "" {
			fmt.Fprintf(&b, "\n%s\n", v.group)
		}

		description := v.description
		if byDefault := v.text(); byDefault != "" {
			description += " (default " + byDefault + ")"
		}

		name := "  " + v.name
		for line := range strings.SplitSeq(text.WrapSoft(description, helpWidth-helpName), "\n") {
			fmt.Fprintf(&b, "%-*s%s\n", helpName, name, strings.TrimRight(line, " "))
			name = ""
		}
	}

	b.WriteString(helpFoot)
	_, err := io.WriteString(w, b.String())
	return err
}

// variable is an environment variable as people see it.
type variable struct {
	name, description string
	value             reflect.Value
	group             string // heading of the group that begins here, or ""
	option            string // package and field of the option with its value, or ""
}

// descriptionLines are lines such as "PQ_NATS_URL: NATS servers". Tags describe the fields of
// access, because each stands for a variable of both connections.
//
//go:embed variables.txt
var descriptionLines string

// descriptionOf returns the description of the variable of a field.
func descriptionOf(name string, tag reflect.StructTag) string {
	_, lines, _ := strings.Cut("\n"+descriptionLines, "\n"+name+": ")
	line, _, _ := strings.Cut(lines, "\n")
	return cmp.Or(tag.Get("desc"), line)
}

// variables describes all variables, with their defaults, in order.
func variables() []variable { return defaultConfig().variables() }

func (c *config) variables() []variable {
	return appendVariables(nil, "", reflect.ValueOf(c).Elem())
}

// wordEnd is where envconfig splits the name of a field.
var wordEnd = regexp.MustCompile(`([a-z])([A-Z])`)

// appendVariables appends the variables of the fields of a struct. Their names begin with prefix
// unless the field names its variable.
func appendVariables(all []variable, prefix string, s reflect.Value) []variable {
	for i := range s.NumField() {
		field, value := s.Type().Field(i), s.Field(i)
		name := strings.ToUpper(wordEnd.ReplaceAllString(field.Name, "${1}_${2}"))
		name = cmp.Or(field.Tag.Get("envconfig"), prefix+"_"+name)

		switch {
		case !field.IsExported():
		case value.Kind() == reflect.Struct:
			all = appendVariables(all, name, value)
		default:
			group, option := field.Tag.Get("group"), field.Tag.Get("option")
			all = append(all, variable{name, descriptionOf(name, field.Tag), value, group, option})
		}
	}
	return all
}

// text returns the value as people write it, or "".
func (v *variable) text() string { return fmt.Sprint(v.value) }

// version is set by the linker for released programs: -X main.version=1.2.3.
var version string

// describeVersion returns the version and the source that this program was built from.
func describeVersion() string { return buildinfo.Describe(version) }
