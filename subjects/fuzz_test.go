package subjects

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// Every request that can be built is parsed to itself, and a NATS client may publish to its
// subject.
func FuzzBuildThenParse(f *testing.F) {
	for _, form := range forms {
		r := form.request
		f.Add(uint8(r.Kind), uint8(r.Verb), r.Queue, r.Priority, r.HasPriority)
	}
	f.Add(uint8(0), uint8(0), "a.*.>", int64(5), false)
	g := defaultGrammar(f)

	f.Fuzz(func(t *testing.T, kind, verb uint8, queue string, priority int64, hasPriority bool) {
		r := Request{
			Kind:        Kind(kind),
			Verb:        Verb(verb),
			Queue:       queue,
			Priority:    priority,
			HasPriority: hasPriority,
		}

		subject, err := g.Build(r)
		if err != nil {
			WantSendable(t, err, ErrPrefix, ErrQueueName, ErrVerb, ErrPriority, ErrToken)
			return
		}
		if got, err := g.Parse(subject); err != nil || got != r {
			t.Fatalf("%+v built %q, parsed to %+v, %v", r, subject, got, err)
		}
		if !g.Owns(subject) || strings.ContainsAny(subject, " \t\r\n*>") ||
			strings.Contains(subject, "..") {
			t.Fatalf("%+v built %q", r, subject)
		}
	})
}

// A subject is parsed to a request that can be built again, or refused with an error that fits into
// a header.
func FuzzParse(f *testing.F) {
	for _, form := range forms {
		f.Add(form.subject)
	}
	f.Add("pq..push.\x00")
	f.Add("q." + strings.Repeat("\xff", 300) + ".peek")
	g := defaultGrammar(f)

	f.Fuzz(func(t *testing.T, subject string) {
		r, err := g.Parse(subject)
		if err != nil {
			WantSendable(t, err, ErrPrefix, ErrQueueName, ErrVerb, ErrPriority, ErrToken)
			return
		}

		built, err := g.Build(r)
		if err != nil {
			t.Fatalf("%q parsed to %+v, which does not build: %v", subject, r, err)
		}
		// A priority may have been written with leading zeros.
		if built != subject && !r.HasPriority {
			t.Fatalf("%q parsed to %+v, which builds %q", subject, r, built)
		}

		if again, err := g.Parse(built); err != nil || again != r {
			t.Fatalf("%q parsed to %+v, %q to %+v, %v", subject, r, built, again, err)
		}
	})
}

// WantSendable checks that an error is one of ours, and fits into a header.
func WantSendable(t *testing.T, err error, ours ...error) {
	t.Helper()
	text := err.Error()
	isErr := func(sentinel error) bool { return errors.Is(err, sentinel) }
	isOurs := slices.ContainsFunc(ours, isErr)
	unprintable := func(c rune) bool { return c < ' ' || c > '~' }
	if !isOurs || strings.ContainsFunc(text, unprintable) || len(text) > 1000 {
		t.Fatalf("error %q", text)
	}
}
