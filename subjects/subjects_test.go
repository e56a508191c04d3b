package subjects

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/subjects/settings"
)

func defaultGrammar(t testing.TB) Grammar {
	t.Helper()
	g, err := New(DefaultPriorityPrefix, DefaultFIFOPrefix)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// forms has requests of every form, with their subjects.
var forms = []struct {
	subject string
	request Request
}{
	{"pq.jobs.push", Request{Kind: Priority, Verb: Push, Queue: "jobs"}},
	{"pq.jobs.push.0", Request{Kind: Priority, Verb: Push, Queue: "jobs", HasPriority: true}},
	{
		"pq.jobs.push.-9223372036854775808",
		Request{
			Kind:        Priority,
			Verb:        Push,
			Queue:       "jobs",
			HasPriority: true,
			Priority:    math.MinInt64,
		},
	},
	{"pq.jobs.push.batch", Request{Kind: Priority, Verb: PushBatch, Queue: "jobs"}},
	{"pq.batch.push.batch", Request{Kind: Priority, Verb: PushBatch, Queue: "batch"}},
	{"pq.push.push", Request{Kind: Priority, Verb: Push, Queue: "push"}},
	{"pq.jobs.pop.min", Request{Kind: Priority, Verb: Pop, Queue: "jobs"}},
	{"pq.jobs.peek.min", Request{Kind: Priority, Verb: Peek, Queue: "jobs"}},
	{"pq.jobs.len", Request{Kind: Priority, Verb: Len, Queue: "jobs"}},
	{"pq.list", Request{Kind: Priority, Verb: List}},
	{"q.list", Request{Kind: FIFO, Verb: List}},
	{"pq.list.push", Request{Kind: Priority, Verb: Push, Queue: "list"}},
	{"pq.list.info", Request{Kind: Priority, Verb: Info, Queue: "list"}},
	{"q.mail_2-A.push", Request{Kind: FIFO, Verb: Push, Queue: "mail_2-A"}},
	{"q.mail_2-A.push.batch", Request{Kind: FIFO, Verb: PushBatch, Queue: "mail_2-A"}},
	{"q.mail_2-A.pop", Request{Kind: FIFO, Verb: Pop, Queue: "mail_2-A"}},
	{"q.mail_2-A.peek", Request{Kind: FIFO, Verb: Peek, Queue: "mail_2-A"}},
}

// A subject is parsed to its request, and the request builds the subject, under any prefix.
func TestParseAndBuild(t *testing.T) {
	g := defaultGrammar(t)
	other, err := New("acme.work.pq", "acme.work.q")
	if err != nil {
		t.Fatal(err)
	}

	for _, form := range forms {
		if got, err := g.Parse(form.subject); err != nil || got != form.request {
			t.Errorf("parse %s: got %+v, %v, want %+v", form.subject, got, err, form.request)
		}
		if got, err := g.Build(form.request); err != nil || got != form.subject {
			t.Errorf("build %+v: got %s, %v, want %s", form.request, got, err, form.subject)
		}

		longer := "acme.work." + form.subject
		if got, err := other.Parse(longer); err != nil || got != form.request {
			t.Errorf("parse %s: got %+v, %v, want %+v", longer, got, err, form.request)
		}
	}
}

// A subject that asks for nothing is refused with what would be right.
func TestParseRefuses(t *testing.T) {
	long := strings.Repeat("x", settings.MaxQueueName+1)
	tests := []struct {
		subject string
		is      error
		want    string
	}{
		{"", ErrPrefix, `bad prefix: subject "" begins neither with "pq." nor with "q."`},
		{"pqx.jobs.push", ErrPrefix, `subject "pqx.jobs.push"`},
		{
			"pq.", ErrVerb,
			`subject "pq." is too short: want pq.<queue>.<verb>, the verb one of push, ` +
				`push.<priority>, push.batch, pop.min, pop.max, peek.min, peek.max, len`,
		},
		{
			"q.mail", ErrVerb,
			`subject "q.mail" is too short: want q.<queue>.<verb>, the verb one of push, ` +
				`push.batch, pop, peek, len`,
		},
		{"pq.jobs.", ErrVerb, `unknown verb "": want one of push,`},
		{
			"pq.jobs.pop.middle",
			ErrVerb,
			`unknown verb "pop.middle": want one of push, push.<priority>, push.batch, pop.min, ` +
				`pop.max, peek.min, peek.max, len, ack.<token>, config, info, get, result, ` +
				`remove, rank, move, ` +
				`items, release, schedule, schedules, unschedule, purge, redrive`,
		},
		{"pq.jobs.PUSH", ErrVerb, `unknown verb "PUSH"`},
		{"pq.List", ErrVerb, `too short: want pq.<queue>.<verb>, the verb one of push,`},
		{
			"q.mail.enqueue",
			ErrVerb,
			`unknown verb "enqueue": want one of push, push.batch, pop, peek, len`,
		},
		{
			"q.mail.dequeue",
			ErrVerb,
			`unknown verb "dequeue": want one of push, push.batch, pop, peek, len`,
		},
		{"q.mail.push.5", ErrVerb, `unknown verb "push.5"`},
		{"q.mail.pop.min", ErrVerb, `unknown verb "pop.min"`},
		{"q.mail.pop.max", ErrVerb, `unknown verb "pop.max"`},
		{"q.mail.move", ErrVerb, `unknown verb "move"`},
		{
			"pq.jobs.pop",
			ErrVerb,
			`unknown verb "pop": want one of push, push.<priority>, push.batch, pop.min,`,
		},
		{"pq.jobs.peek", ErrVerb, `unknown verb "peek"`},
		{"pq.jobs.\r\nx\xff", ErrVerb, `unknown verb "\r\nx\xff"`},
		{
			"pq..push",
			ErrQueueName,
			`bad queue name "": it is empty: want 1 to 128 letters, digits, '-' and '_'`,
		},
		{"pq.>.push", ErrQueueName, `it holds ">"`},
		{"pq.gr\u00fcn.push", ErrQueueName, `bad queue name "gr\u00fcn": it holds "\xc3"`},
		{"pq." + long + ".push", ErrQueueName, `x"... (129 bytes): it is 129 bytes long`},
		{"pq.jobs.push.", ErrPriority, `bad priority ""`},
		{"q.jobs.push.batch.5", ErrVerb, `unknown verb "push.batch.5"`},
		{
			"pq.jobs.push.5.6",
			ErrPriority,
			`bad priority "5.6": want a decimal integer, such as 5 or -5`,
		},
	}

	g := defaultGrammar(t)
	for _, test := range tests {
		got, err := g.Parse(test.subject)
		if got != (Request{}) || !errors.Is(err, test.is) ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: got %+v, %v; want %q", test.subject, got, err, test.want)
		}
	}
}

// A request that its kind of queue does not have builds no subject.
func TestBuildRefuses(t *testing.T) {
	tests := []struct {
		request Request
		is      error
		want    string
	}{
		{Request{}, ErrQueueName, "it is empty"},
		{Request{Queue: "jobs", Verb: List}, ErrVerb, "list with a queue"},
		{Request{Queue: "a.b"}, ErrQueueName, `it holds "."`},
		{
			Request{Queue: "mail", Kind: FIFO, Verb: PopMax},
			ErrVerb,
			"unknown verb pop.max for a queue of kind fifo: want one of push, push.batch, pop,",
		},
		{
			Request{Queue: "mail", Kind: FIFO, HasPriority: true},
			ErrPriority,
			"the verb push takes none",
		},
		{Request{Queue: "jobs", Verb: 99}, ErrVerb, "unknown verb Verb(99)"},
		{Request{Queue: "jobs", Kind: 9}, ErrVerb, "kind Kind(9)"},
		{Request{Queue: "jobs", Priority: 5}, ErrPriority, "5 without HasPriority"},
		{
			Request{Queue: "jobs", Verb: Pop, HasPriority: true},
			ErrPriority,
			"the verb pop.min takes none",
		},
		{
			Request{Queue: "jobs", Verb: PushBatch, HasPriority: true},
			ErrPriority,
			"the verb push.batch takes none",
		},
	}

	g := defaultGrammar(t)
	for _, test := range tests {
		got, err := g.Build(test.request)
		if got != "" || !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: got %q, %v; want %q", test.request, got, err, test.want)
		}
	}
}

// A prefix has tokens in the form of queue names, and none begins the other.
func TestNewRefuses(t *testing.T) {
	tests := []struct {
		priority, fifo string
		want           []string
	}{
		{"", "q", []string{`bad prefix "": a token is empty`}},
		{"pq.", "q", []string{`bad prefix "pq.": a token is empty`}},
		{"pq", "a..b", []string{`bad prefix "a..b": a token is empty`}},
		{"pq.*", "q q", []string{`"pq.*": a token holds "*"`, `"q q": a token holds " "`}},
		{"_INBOX", "q", []string{`bad prefix "_INBOX": begins with '_'`}},
		{"pq", strings.Repeat("q", 129), []string{"a token is 129 bytes long"}},
		{"pq", "pq", []string{`"pq" and "pq" overlap`}},
		{"pq", "pq.fifo", []string{"overlap: want two of which neither begins the other"}},
	}

	for _, test := range tests {
		_, err := New(test.priority, test.fifo)
		for _, want := range test.want {
			if !errors.Is(err, ErrPrefix) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q, %q: got %v, want %q", test.priority, test.fifo, err, want)
			}
		}
	}

	if _, err := New("pq", "pqx"); err != nil {
		t.Errorf("prefixes that share only a part of a token do not overlap: %v", err)
	}
}

// A bridge owns the subjects that it subscribes to, and no others.
func TestOwnsWhatTheWildcardsMatch(t *testing.T) {
	g := defaultGrammar(t)
	if got, want := g.Wildcards(), []string{"pq.>", "q.>"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	for subject, want := range map[string]bool{
		"pq.jobs.push":   true,
		"pq.x":           true,
		"q.anything":     true,
		"":               false,
		"pq":             false,
		"q":              false,
		"pqs.jobs.push":  false,
		"_INBOX.pq.jobs": false,
	} {
		if got := g.Owns(subject); got != want {
			t.Errorf("%q: got %v, want %v", subject, got, want)
		}
	}
}

// A priority is any decimal int64, written without a plus sign or blanks.
func TestParsePriority(t *testing.T) {
	for text, want := range map[string]int64{
		"0":                    0,
		"-0":                   0,
		"7":                    7,
		"-7":                   -7,
		"007":                  7,
		"9223372036854775807":  math.MaxInt64,
		"-9223372036854775808": math.MinInt64,
	} {
		if got, err := ParsePriority(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}

	for _, text := range []string{
		"", "-", "--5", "+5", " 5", "5 ", "5.0", "0x5", "1_000", "1e3", "five", "٥",
	} {
		got, err := ParsePriority(text)
		if !errors.Is(err, ErrPriority) ||
			!strings.Contains(err.Error(), "want a decimal integer") {
			t.Errorf("%q: got %d, %v", text, got, err)
		}
	}

	for _, text := range []string{
		"9223372036854775808", "-9223372036854775809", strings.Repeat("9", 5000),
	} {
		got, err := ParsePriority(text)
		if !errors.Is(err, ErrPriority) ||
			!strings.Contains(err.Error(), "want -9223372036854775808 to 9223372036854775807") {
			t.Errorf("%q: got %d, %v", text, got, err)
		}
	}
}

// Parsing a subject allocates nothing.
func TestParseAllocatesNothing(t *testing.T) {
	g := defaultGrammar(t)
	for _, form := range forms {
		allocs := testing.AllocsPerRun(100, func() {
			if _, err := g.Parse(form.subject); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations, want none", form.subject, allocs)
		}
	}
}

// Texts for logs and errors name the subject of an acknowledgement, but not its token.
func TestHideTokens(t *testing.T) {
	for text, want := range map[string]string{
		`to "pq.jobs.ack.AQAABmDC4gd9-J1RAQBh": refused`: `to "pq.jobs.ack.AQAA...": refused`,
		"pq.ack.ack.AQAABmDC4gd9-J1RAQBh":                "pq.ack.ack.AQAA...",
		"pq.ack.push.batch":                              "pq.ack.push.batch",
		"q.jobs.ack.*":                                   "q.jobs.ack.*",
		"$JS.ACK.pq.h.jobs.w.1.AQAABmDC4gd9-J1RAQBh":     "$JS.ACK.pq.h.jobs.w.1.AQAA...",
		"_R_.kd83Ax.9Sk3ldAx":                            "_R_.kd83...",
		"_INBOX.AQAABmDC4gd9J1RAQBhAQA.x":                "_INBOX.AQAABmDC4gd9J1RAQBhAQA.x",
	} {
		if got := HideTokens(text); got != want {
			t.Errorf("%s: %s; want %s", text, got, want)
		}
	}
}
