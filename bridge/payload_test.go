package bridge_test

import (
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// A payload that is longer than any documented request of its verb is refused before it is read,
// and the answer is short.
func TestTooLargePayloads(t *testing.T) {
	e := start(t, testenv.Options{})
	maxPayload := int(e.Conn.MaxPayload())

	for _, endpoint := range e.Grammar.Endpoints() {
		verb := endpoint.Verb
		most := verb.MostPayload()

		if most == 0 || most > maxPayload {
			continue // it takes none, or is bounded by NATS alone
		}

		r := subjects.Request{Kind: endpoint.Kind, Verb: verb}
		if verb != subjects.List {
			r.Queue = "jobs"
		}

		subject, err := e.Grammar.Build(r)
		if err != nil {
			t.Fatal(err)
		}

		for _, size := range []int{most + 1, maxPayload} {
			payload := []byte(`{"` + strings.Repeat("x", size-2))
			err := refused(t, e, 413, subject, nil, payload)
			if len(err.Text) > 200 {
				t.Errorf("%s: %d bytes of text", subject, len(err.Text))
			}
		}
		refused(t, e, 400, subject, nil, []byte(`{"`+strings.Repeat("x", most-2)))
	}
}
