package main

import (
	"encoding/json"
	"io"
	"os"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pqbridge/pqbridge/subjects"
)

// printer prints items.
type printer struct{ json bool }

func (p *printer) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.json, "json", false,
		"print a line of JSON with id, priority, time of push, headers and value (as value_base64 if it is not UTF-8)")
}

// item is an item as --json prints it. Value is set if the bytes are UTF-8,
// Base64 otherwise.
type item struct {
	Queue    string      `json:"queue"`
	ID       string      `json:"id,omitempty"`
	Priority *int64      `json:"priority,omitempty"`
	PushedAt string      `json:"pushed_at,omitempty"`
	Headers  nats.Header `json:"headers,omitempty"`
	Value    *string     `json:"value,omitempty"`
	Base64   []byte      `json:"value_base64,omitempty"`
}

// print prints the item in reply, all of it in one write. A single value is
// printed without a newline, unless a person looks at it.
func (p *printer) print(out io.Writer, reply *nats.Msg, queue string, single bool) error {
	if p.json {
		return json.NewEncoder(out).Encode(newItem(queue, reply))
	}
	line := reply.Data
	if !single || isTerminal(out) {
		line = append(line, '\n')
	}
	_, err := out.Write(line)
	return err
}

func newItem(queue string, reply *nats.Msg) *item {
	it := &item{Queue: queue, Headers: nats.Header{}}
	for name, values := range reply.Header {
		switch name {
		case subjects.HeaderID:
			it.ID = values[0]
		case subjects.HeaderPushedAt:
			it.PushedAt = values[0]
		case subjects.HeaderPriority:
			if priority, err := subjects.ParsePriority(values[0]); err == nil {
				it.Priority = &priority
			}
		default:
			it.Headers[name] = values
		}
	}
	if utf8.Valid(reply.Data) {
		value := string(reply.Data)
		it.Value = &value
	} else {
		it.Base64 = reply.Data
	}
	return it
}

// isTerminal reports whether w is a terminal that a person looks at.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
